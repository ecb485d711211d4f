"""How a training went, from the record that it kept: metrics.jsonl, a line for every few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from yanmo.formats.training_record import finite, steps_cpu_seconds, training_lines
from yanmo.store.output import Output

MOST_POINTS = 400
"""Points of a series that a page shows; longer ones are averaged by neighbours."""
_MOST_EVENTS = 30


def training_report(model: Output) -> dict[str, Any] | None:
    """Curves and events of the training that made `model`; None where it kept no record.

    Curves are lists of [step, value].
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
    speeds = [s for line in steps if (s := finite(line.get("tokens_per_second")))]
    return {
        **{name: model.manifest.counts.get(name) for name in ("steps", "tokens", "parameters")},
        "made_by": model.manifest.metadata.get("made_by"),
        "seconds": finite(last.get("seconds")),
        "cpu_seconds": steps_cpu_seconds(lines),
        "bits_per_character": thinned(_points(steps, "bits_per_character")),
        "valid": valid[-MOST_POINTS:],
        "curve": curve[-MOST_POINTS:],
        "events": [line for line in lines if "event" in line][:_MOST_EVENTS],
        "median_tokens_per_second": round(float(np.median(speeds)), 1) if speeds else None,
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
