"""Means over seeds and how sure they are. Standard library only: the pipeline's image has no scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean over seeds."""

    value: float
    number: int
    half_width: float | None
    """Of Student's interval at `LEVEL`; None with one value, which says nothing of the spread."""

    @property
    def low(self) -> float | None:
        return None if self.half_width is None else self.value - self.half_width

    @property
    def high(self) -> float | None:
        return None if self.half_width is None else self.value + self.half_width


def mean_of(values: Sequence[float]) -> Mean | None:
    """Their mean and its interval, as if they were drawn from a normal distribution; None without any."""
    if not values:
        return None
    number, mean = len(values), math.fsum(values) / len(values)
    if number == 1:
        return Mean(mean, 1, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (number - 1)
    return Mean(mean, number, students_t(number - 1) * math.sqrt(variance / number))


@cache
def students_t(freedom: int, level: float = LEVEL) -> float:
    """How far from 0 a share `level` of Student's t distribution reaches: 12.706 with 1 degree of freedom."""
    low, high = 0.0, 1.0
    while _inside(high, freedom) < level:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < level else (low, middle)
    return high


def _inside(t: float, freedom: int) -> float:
    """The chance of a value between -t and t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, is_odd = math.cos(angle), freedom % 2
    term = cosine if is_odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(3 if is_odd else 2, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    return 2 / math.pi * (angle + inside) if is_odd else inside
