"""Finds the fastest of several settings by repeated trials, and reports whether the order is certain.

A single trial of each would rank by chance: on a shared machine two trials of one setting differ by more than
two settings do. So settings near the first are tried again, round after round, forwards and backwards, and
compared pair by pair within a round, which cancels what slows the whole machine for a while. A setting is out
once a 99 % interval of its paired ratios is below 1. In 1,000 contests of five settings on each of four
simulated machines (test_contest.py) the fastest was thrown out in 0 to 3 %; a single trial each names another
one in 3 to 68 %. Equal settings could be tried forever: after some rounds those that are left are reported
next to the winner.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_ROUNDS = 6
_LEAST_ROUNDS = 3
NEAR = 1.5
"""A setting that is slower than the first by more than this in the first round is not tried again."""
_T = {2: 9.925, 3: 5.841, 4: 4.604, 5: 4.032, 6: 3.707, 7: 3.499}
"""Student's t, 99 % two-sided, by degrees of freedom."""


@dataclass(frozen=True)
class Contest:
    """The result of the trials."""

    speeds: list[list[float]]
    """By setting, the speed in each round in which it was tried; 0 where it did not run."""
    best: int
    """The winner; its speeds are 0 where none runs."""
    rivals: list[int]
    """Settings that may be as fast or faster; empty where the order is certain."""
    far: list[int]
    """Settings that a single trial excluded, being slower by `NEAR`; without those that did not run."""

    def speed(self, number: int) -> float:
        """Median over the rounds."""
        return statistics.median(self.speeds[number])

    def gain(self, number: int) -> tuple[float, float, float]:
        """How many times as fast the best is as another: estimate and 99 % interval."""
        return ratio(self.speeds[self.best], self.speeds[number])


def ratio(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """How many times as fast `first` is as `second`, from their common rounds; with a 99 % interval."""
    logs = [math.log(a / b) for a, b in zip(first, second, strict=False) if a and b]
    if not logs:
        return math.nan, 0.0, math.inf
    middle = statistics.fmean(logs)
    if len(logs) < _LEAST_ROUNDS:
        return math.exp(middle), 0.0, math.inf
    degrees = len(logs) - 1
    half = _T.get(degrees, _T[max(_T)]) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def contest(speeds: list[list[float]], measure: Callable[[int], float]) -> Contest:
    """Continue after one trial of each setting until one is the fastest, or the rounds are over.

    Args:
        speeds: speed of each setting in the first round; 0 where it does not run.
        measure: tries the setting of this number once more.
    """
    most = max(values[0] for values in speeds)
    left = [i for i, values in enumerate(speeds) if values[0] * NEAR > most]
    far = [i for i, values in enumerate(speeds) if values[0] and i not in left]
    rounds = 1
    while len(left) > 1 and rounds < MOST_ROUNDS:
        for number in left if rounds % 2 == 0 else left[::-1]:
            speeds[number].append(measure(number))
        rounds += 1
        left = [i for i in left if speeds[i][-1]] or left[:1]
        best = _fastest(speeds, left)
        left = [i for i in left if i == best or ratio(speeds[best], speeds[i])[1] <= 1.0]
    best = _fastest(speeds, left) if left else 0
    return Contest(speeds, best, [i for i in left if i != best], far)


def _fastest(speeds: list[list[float]], among: list[int]) -> int:
    return max(among, key=lambda i: (statistics.fmean(math.log(v or 1e-9) for v in speeds[i]), -i))
