"""Medians of rounds, ratios of contestants that took turns, and how sure they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How many times one is as good as the other."""

    median: float
    low: float
    high: float
    """An interval that holds the true median with 95 %, or with `coverage` if there are too few rounds."""
    coverage: float


def ratio(ours: Sequence[float], theirs: Sequence[float], more_is_better: bool) -> Ratio:
    """From the figures of the same rounds: the load of the machine is nearly the same in both of a pair."""
    pairs = zip(ours, theirs, strict=True)
    found = sorted(a / b if more_is_better else b / a for a, b in pairs)
    left_out, coverage = order_interval(len(found))
    return Ratio(statistics.median(found), found[left_out], found[-1 - left_out], coverage)


def order_interval(count: int) -> tuple[int, float]:
    """How many of the least and of the largest of `count` numbers may be left out, so that what remains holds
    the median of the distribution with 95 % or more; and with how much it does.

    Nothing is assumed of the distribution (sign test): the median lies outside with the probability that
    `left_out` or fewer of `count` fair coins show heads, twice.
    """
    outside = 2 * 0.5**count
    left_out = 0
    while left_out + 1 < count / 2:
        more = outside + 2 * math.comb(count, left_out + 1) * 0.5**count
        if more > 0.05:
            break
        left_out, outside = left_out + 1, more
    return left_out, 1 - outside
