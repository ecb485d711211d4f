"""Documents of a few sizes that lie close together: chosen by counting, as there are too many sums to list.

Thousands of documents of each of three sizes around 30,000 have nearly every sum, but a set of their sums has
a billion entries. What matters is how many documents are taken, and the differences between sizes:

- `number_bounds`: m documents hold at least the sum of the m smallest and at most that of the m largest. If a
  target lies between the m largest and the m + 1 smallest, these are the nearest sums, and nothing needs to
  be tried.
- `of_three`: the counts of all sizes but three stay as they are. For all counts of the third size at once,
  a * x + b * y = rest is solved in closed form, with x and y at most the numbers of documents there are. With
  three sizes without a common divisor, and many documents of each, there is a solution unless the target is
  nearly nothing or nearly everything.

Cost: a pass of about ten operations over the documents of the rarest of the three sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_SIZES = 7
"""The sizes with the most documents, of which all sets of three are tried: so many."""
_WORK = 30_000_000
"""Counts that are tried in all, at most."""
_BELOW = 64
"""How many sums are tried: the target and those below it."""


def number_bounds(sizes: Ints, target: int) -> tuple[int, int, int | None] | None:
    """If no number of documents can hold `target`: how many of the largest fit, the sums below and above.

    Returns:
        None if, for some number of documents, the smallest hold at most and the largest at least `target`.
    """
    ends = np.sort(sizes)
    least, most = np.cumsum(ends), np.cumsum(ends[::-1])
    fit = int(np.searchsorted(most, target, side="right"))  # so many documents always fit
    if fit < len(sizes) and int(least[fit]) <= target:
        return None
    return fit, int(most[fit - 1]) if fit else 0, int(least[fit]) if fit < len(sizes) else None


def counts_near(different: Ints, counts: Ints, have: Ints, target: int) -> tuple[Ints, int] | None:
    """How many documents of each size to take, and their sum: the target, or as little below it as was found.

    Args:
        different: the sizes, without a common divisor.
        counts: documents of each.
        have: those taken so far, near the target; what is left of a choice stays near to it.
    """
    left = _WORK
    ends = np.repeat(different, counts)
    least, most = (np.concatenate(([0], np.cumsum(each))) for each in (ends, ends[::-1]))
    for goal in range(target, max(target - _BELOW, -1), -1):
        inside = np.flatnonzero((least <= goal) & (goal <= most))  # numbers of documents that can hold it
        spread = _spread_evenly(different, counts, goal, inside, int(have.sum()))
        for start, three in itertools.product((have, spread), _threes(different, counts)):
            if start is not None:
                left -= int(counts[three[2]]) + 1000
                found = of_three(different, counts, start, three, goal)
                if found is not None:
                    return found, goal
                if left < 0:
                    return None
    return None


def _spread_evenly(different: Ints, counts: Ints, target: int, numbers: Ints, near: int) -> Ints | None:
    """Counts of nearly `target` units, with something in and out of each size; None where there are none.

    They lie on the line from the smallest to the largest documents of a number that the divisor of the
    differences allows, the one of `numbers` that is nearest to `near`.
    """
    base = int(different[0])
    divisor = int(np.gcd.reduce(different - base)) or 1
    numbers = numbers[(target - numbers * base) % divisor == 0]
    if not len(numbers):
        return None
    m = int(numbers[np.argmin(abs(numbers - near))])
    small = np.clip(m - (np.cumsum(counts) - counts), 0, counts)
    large = np.clip(m - (np.cumsum(counts[::-1]) - counts[::-1]), 0, counts[::-1])[::-1]
    lowest, highest = int(small @ different), int(large @ different)
    exact = small + (large - small) * ((target - lowest) / max(1, highest - lowest))
    whole = np.floor(exact).astype(np.int64)
    more = np.argsort(whole - exact, kind="stable")[: m - int(whole.sum())]
    whole[more] += 1
    nearest: Ints = np.minimum(whole, counts)
    return nearest


def _threes(different: Ints, counts: Ints) -> Iterator[tuple[int, int, int]]:
    """Three sizes, the rarest one last: those with the least divisors, of sizes and differences, first.

    Then those with the smallest or the largest size: of a large share of all documents every other size may
    be taken whole, so that none of them can give room for another.
    """
    by_count = np.argsort(-counts, kind="stable").tolist()
    many, ends = by_count[:_SIZES], {0, len(different) - 1}
    more = [size for size in by_count if size in ends or size in many]
    threes = list(itertools.combinations(many, 3))
    with_ends = [three for three in itertools.combinations(more, 3) if not ends.isdisjoint(three)]

    def divisors(three: tuple[int, int, int]) -> tuple[int, int]:
        a, b, c = (int(different[i]) for i in three)
        return math.gcd(a, b, c), math.gcd(b - a, c - a)

    yield from sorted(threes, key=divisors)
    yield from sorted(set(with_ends) - set(threes), key=lambda three: (divisors(three), three))


def of_three(
    different: Ints, counts: Ints, have: Ints, three: tuple[int, int, int], target: int
) -> Ints | None:
    """Counts that hold exactly `target`, with all but `three` as in `have`; None where there are none.

    Of several the one that differs least from `have`.
    """
    first, second, third = three
    a, b, c = (int(different[i]) for i in three)
    others = have.copy()
    others[list(three)] = 0
    rest = target - int(others @ different)
    if rest < 0:
        return None
    number = np.arange(min(int(counts[third]), rest // c) + 1)
    left = rest - number * c
    divisor = math.gcd(a, b)
    fits = left % divisor == 0
    number, left = number[fits], left[fits] // divisor
    a, b = a // divisor, b // divisor
    # a * x = left (mod b): x = x0 + b * k, y = (left - a * x) / b, and 0 <= y <= its number
    x0 = (left % b) * (pow(a, -1, b) if b > 1 else 0) % b
    least = np.maximum(-(-(left - b * int(counts[second])) // a), 0)
    most = np.minimum(left // a, int(counts[first]))
    wished = np.clip(int(have[first]), least, most)
    x = x0 + (wished - x0) // b * b  # the last one not above what is wished, or the next
    x = np.where((x < least) | (abs(x + b - wished) < abs(x - wished)) & (x + b <= most), x + b, x)
    good = (x >= least) & (x <= most)
    if not good.any():
        return None
    number, x = number[good], x[good]
    y = (left[good] - a * x) // b
    wide = abs(number - int(have[third])) + abs(x - int(have[first])) + abs(y - int(have[second]))
    at = int(np.argmin(wide))
    others[first], others[second], others[third] = int(x[at]), int(y[at]), int(number[at])
    return others
