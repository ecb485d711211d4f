"""How a training went, from the record that it kept: metrics.jsonl, a line for every few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from yanmo.formats.stage_cost import finite, steps_cpu_seconds, training_lines
from yanmo.store.output import Output

MOST_POINTS = 400
"""Points of a series that a page shows; longer ones are averaged by neighbours."""
_SERIES = ("bits_per_character", "grad_norm", "tokens_per_second", "learning_rate")
STALL = 0.5
"""An interval slower than this share of the median speed is a stall."""
_MOST_EVENTS = 30


def training_report(model: Output) -> dict[str, Any] | None:
    """Series, stalls and events of the training that made `model`; None where it kept no record.

    Series are lists of [step, value]. `stalls` are the slow intervals, `lost_seconds` the time that they took
    beyond what the median speed would have taken.
    """
    lines = training_lines(model)
    steps = [line for line in lines if "tokens_per_second" in line or "loss" in line]
    if not steps:
        return None
    last = steps[-1]
    valid, curve = (
        [[v["step"], m] for v in lines if (m := _mean(v.get(f"{name}_bits_per_character"))) is not None]
        for name in ("valid", "curve")
    )
    return {
        **{name: model.manifest.counts.get(name) for name in ("steps", "tokens", "parameters")},
        "made_by": model.manifest.metadata.get("made_by"),
        "seconds": finite(last.get("seconds")),
        "cpu_seconds": steps_cpu_seconds(lines),
        "series": {name: thinned(_points(steps, name)) for name in _SERIES},
        "valid": valid[-MOST_POINTS:],
        "curve": curve[-MOST_POINTS:],
        "phases": _phases(steps),
        "events": [line for line in lines if "event" in line][:_MOST_EVENTS],
        **_stalls(steps),
    }


def _points(lines: Sequence[Mapping[str, Any]], name: str) -> list[list[float]]:
    return [[line["step"], v] for line in lines if (v := finite(line.get(name))) is not None]


def _mean(value: Any) -> float | None:
    """A validation's value: itself, or the mean over the genres it is given for."""
    if not isinstance(value, Mapping):
        return finite(value)
    if "mean" in value:
        return finite(value["mean"])
    numbers = [v for v in map(finite, value.values()) if v is not None]
    return float(np.mean(numbers)) if numbers else None


def thinned(points: list[list[float]]) -> list[list[float]]:
    """As many points as can be seen, each the mean of its neighbours."""
    if len(points) <= MOST_POINTS:
        return points
    parts = np.array_split(np.array(points), MOST_POINTS)
    return [[float(x), float(y)] for x, y in (part.mean(0) for part in parts)]


def _phases(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds by phase (forward, backward, data ...) over the whole run, where they were taken."""
    total: dict[str, float] = {}
    for line in lines:
        for name, value in (line.get("phase_seconds") or {}).items():
            total[name] = total.get(name, 0.0) + (finite(value) or 0.0)
    return {name: round(seconds, 3) for name, seconds in total.items()}


def _stalls(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Intervals far below the median speed, and the time lost in them."""
    speeds = [s for line in lines if (s := finite(line.get("tokens_per_second")))]
    if not speeds:
        return {"median_tokens_per_second": None, "stalls": [], "lost_seconds": 0.0}
    median, stalls, lost = float(np.median(speeds)), [], 0.0
    before: Mapping[str, Any] = {"step": 0, "seconds": 0.0}
    for line in lines:
        speed, seconds = finite(line.get("tokens_per_second")), finite(line.get("seconds"))
        if speed is not None and seconds is not None and speed < STALL * median:
            took = seconds - (finite(before.get("seconds")) or 0.0)
            over = max(took * (1 - speed / median), 0.0)
            lost += over
            stalls.append(
                {"from_step": before["step"], "to_step": line["step"], "lost_seconds": round(over, 1)}
            )
        before = line
    return {
        "median_tokens_per_second": round(median, 1),
        "stalls": sorted(stalls, key=lambda s: -s["lost_seconds"])[:_MOST_EVENTS],
        "lost_seconds": round(lost, 1),
    }
