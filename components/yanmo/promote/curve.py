"""The loss curve of a training as an SVG of a few kilobytes: no script, no library."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yanmo.common.errors import DataError
from yanmo.common.store.output import Output

log = logging.getLogger(__name__)
_WIDTH, _HEIGHT = 480, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 10, 34
_MOST_POINTS = 300
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """Bits per character by step."""

    train: Points
    valid: Points

    @property
    def last_valid(self) -> float | None:
        """The last validation's figure."""
        return self.valid[-1][1] if self.valid else None


def read_curves(model: Output) -> Curves:
    """The curves in a model's metrics.jsonl; empty ones where it has none."""
    train: Points = []
    valid: Points = []
    try:
        lines = model.path("metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except DataError as error:
        log.warning("no loss curve: %s", error)
        return Curves(train, valid)
    for line in filter(None, lines):
        values = json.loads(line)
        _append(train, values, values.get("bits_per_character"))
        _append(valid, values, _mean(values.get("valid_bits_per_character")))
    return Curves(train, valid)


def _append(points: Points, values: dict[str, Any], y: float | None) -> None:
    if y is not None and np.isfinite(y) and "step" in values:
        points.append((float(values["step"]), float(y)))


def _mean(value: Any) -> float | None:
    """A validation's figure: itself, or the mean over the genres it is given for."""
    if not isinstance(value, dict):
        return None if value is None else float(value)
    if "mean" in value:
        return float(value["mean"])
    return float(np.mean(list(value.values()))) if value else None


def svg(curves: Curves) -> str:
    """An `<svg>` with both curves, axes and grid, colored by the page's style sheet; "" without points."""
    points = [*curves.train, *curves.valid]
    if len(points) < 2:
        return ""
    xs, ys = zip(*points, strict=True)
    right, low = max(xs), min(ys)
    high = max(float(np.quantile(ys, 0.98)), max((y for _, y in curves.valid), default=low)) + 1e-9
    ticks_y, ticks_x = _ticks(low, high, 5), _ticks(0, right, 5)
    low, high = min(low, ticks_y[0]), max(high, ticks_y[-1])

    def place(point: tuple[float, float]) -> str:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * point[0] / (right or 1)
        share = (min(point[1], high) - low) / ((high - low) or 1)
        return f"{x:.1f},{_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share:.1f}"

    parts = [*_grid(ticks_x, ticks_y, place, right, low)]
    parts += [_line("train", [place(p) for p in _thinned(curves.train)])]
    parts += [_line("valid", [place(p) for p in curves.valid])]
    parts += [_dot(place(p)) for p in curves.valid[-40:]]
    label = "Bits per character by training step"
    return (
        f'<svg class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _thinned(points: Points) -> Points:
    """At most so many points as can be seen, each the mean of its neighbours."""
    if len(points) <= _MOST_POINTS:
        return points
    parts = np.array_split(np.array(points), _MOST_POINTS)
    return [(float(x), float(y)) for x, y in (part.mean(0) for part in parts)]


def _ticks(low: float, high: float, number: int) -> list[float]:
    """Round values from `low` to `high`, about so many."""
    span = (high - low) or 1.0
    rough = span / number
    unit = 10.0 ** np.floor(np.log10(rough))
    step = next(s * unit for s in (1, 2, 2.5, 5, 10) if s * unit >= rough)
    return [float(v) for v in np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step] or [low]


def _grid(
    ticks_x: Sequence[float], ticks_y: Sequence[float], place: Any, right: float, low: float
) -> Iterable[str]:
    for y in ticks_y:
        at = place((0, y)).split(",")[1]
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at}" dy=".35em" text-anchor="end">{y:g}</text>'
    for x in ticks_x:
        at = place((x, low)).split(",")[0]
        anchor = "end" if x > 0.95 * right else "middle"
        yield f'<text x="{at}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="{anchor}">{x:g}</text>'
    middle = (_WIDTH + _LEFT - _RIGHT) / 2
    yield f'<text x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">step 步</text>'


def _line(name: str, places: Sequence[str]) -> str:
    return f'<polyline class="{name}" points="{" ".join(places)}"/>' if len(places) > 1 else ""


def _dot(place: str) -> str:
    x, y = place.split(",")
    return f'<circle class="valid" cx="{x}" cy="{y}" r="3"/>'
