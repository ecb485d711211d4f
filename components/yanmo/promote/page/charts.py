"""Charts as places in percent, so that the page draws them without a library and every label keeps its size.

Lines go into an `<svg>` that is stretched to its frame; labels, dots and bars are HTML next to it. Nothing in
here makes HTML: the template does, and escapes every word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Point = Sequence[float]


@dataclass(frozen=True)
class Tick:
    """A label at a place of an axis, in percent from the left or the bottom."""

    at: float
    label: str


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    style: str
    """CSS class."""
    points: str
    """The value of `<polyline points>`, in a frame of 100 by 100, y downwards."""
    dots: tuple[tuple[float, float], ...] = ()
    """Places from the left and the bottom, percent."""


@dataclass(frozen=True)
class LineChart:
    """Lines over training steps."""

    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def line_chart(series: Mapping[str, Sequence[Point]], *, dotted: str = "") -> LineChart | None:
    """A chart of `series` (CSS class -> points [x, y]); None below two points in all.

    Args:
        dotted: the series whose points are shown as dots too.
    """
    points = [p for values in series.values() for p in values]
    if len(points) < 2:
        return None
    right = max(float(p[0]) for p in points) or 1.0
    low, high, ticks = _frame([float(p[1]) for p in points])

    def place(point: Point) -> tuple[float, float]:
        y = min(max(float(point[1]), low), high)
        return round(100 * float(point[0]) / right, 2), round(100 * (y - low) / (high - low), 2)

    lines = []
    for style, values in series.items():
        places = [place(p) for p in values]
        drawn = " ".join(f"{x:g},{round(100 - y, 2):g}" for x, y in places) if len(places) > 1 else ""
        lines.append(Line(style, drawn, tuple(places[-40:]) if style == dotted else ()))
    return LineChart(
        tuple(lines),
        tuple(Tick(round(100 * t / right, 2), short(t)) for t in ticks_between(0, right, 4)),
        tuple(Tick(round(100 * (t - low) / (high - low), 2), short(t)) for t in ticks),
    )


def _frame(ys: Sequence[float]) -> tuple[float, float, list[float]]:
    """Lowest and highest y of the frame, and the ticks in it; single peaks are cut."""
    low, high = min(ys), float(np.quantile(ys, 0.98))
    if max(ys) < low + 1.5 * (high - low):
        high = max(ys)
    if high - low < 1e-9 * max(abs(high), 1.0):
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    ticks = ticks_between(low, high, 4)
    return min(low, ticks[0]), max(high, ticks[-1]), ticks


def ticks_between(low: float, high: float, number: int) -> list[float]:
    """Round values from `low` to `high`, about so many."""
    span = (high - low) or 1.0
    rough = span / number
    unit = 10.0 ** np.floor(np.log10(rough))
    step = next(s * unit for s in (1, 2, 2.5, 5, 10) if s * unit >= rough * (1 - 1e-9))
    found = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) * step
    return [float(round(v, 10)) + 0.0 for v in found] or [low]  # + 0.0: no -0


def short(value: float) -> str:
    """A tick's label: 0.05, 2.5, 450, 12k, 3.2M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.3g}{name}"
    return f"{value:.4g}"


@dataclass(frozen=True)
class Mark:
    """One value on a row of a dot chart; places in percent from the left."""

    style: str
    at: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class DotChart:
    """Bits per character: a row per genre, a mark per model or baseline."""

    ticks: tuple[Tick, ...]
    rows: tuple[tuple[str, tuple[Mark, ...]], ...]
    """Genre, marks."""
    mean: tuple[Mark, ...]
    styles: dict[str, str] = field(default_factory=dict)
    """Column id -> CSS class, of the columns that are drawn."""
    left_out: tuple[str, ...] = ()
    """Ids of columns too far away to be drawn."""


_FAR = 1.18
"""A column that is so many times the challenger's would squeeze the others."""
_MODELS = ("challenger", "champion", "with_tag")
_STYLES = ("b1", "b2", "b3", "b4")


def dot_chart(columns: Sequence[Mapping[str, Any]]) -> DotChart:
    """The chart of `columns` as `report.bits_table` gives them; the challenger first."""
    near = [c for c in columns if _times(c, columns[0]) <= _FAR]
    free = iter(_STYLES)
    styles = {c["id"]: c["id"] if c["id"] in _MODELS else next(free, _STYLES[-1]) for c in near}
    cells = [cell for c in near for cell in (*c["rows"].values(), c["mean"]) if cell["value"] is not None]
    ends = [v for cell in cells for v in (cell["value"], *(cell["interval"] or ()))]
    margin = 0.03 * (max(ends) - min(ends) or 1.0)
    low, high = min(ends) - margin, max(ends) + margin

    def place(value: float) -> float:
        return round(float(100 * (value - low) / (high - low)), 2)

    def marks(cells: Mapping[str, Mapping[str, Any]]) -> tuple[Mark, ...]:
        drawn = [(styles[c], cell) for c, cell in cells.items() if cell["value"] is not None]
        return tuple(_mark(style, cell, place) for style, cell in reversed(drawn))

    rows = tuple((g, marks({c["id"]: c["rows"][g] for c in near})) for g in columns[0]["rows"])
    ticks = tuple(Tick(place(t), f"{t:.4g}") for t in ticks_between(low, high, 5))
    left_out = tuple(c["id"] for c in columns if c["id"] not in styles)
    return DotChart(ticks, rows, marks({c["id"]: c["mean"] for c in near}), styles, left_out)


def _times(column: Mapping[str, Any], first: Mapping[str, Any]) -> float:
    """A column's mean over the genres that it has, in units of the first column's over the same."""
    known = {g: cell["value"] for g, cell in column["rows"].items() if cell["value"] is not None}
    return float(sum(known.values()) / sum(first["rows"][g]["value"] for g in known)) if known else math.inf


def _mark(style: str, cell: Mapping[str, Any], place: Any) -> Mark:
    low, high = map(place, cell["interval"]) if cell["interval"] else (None, None)
    return Mark(style, place(cell["value"]), low, high)
