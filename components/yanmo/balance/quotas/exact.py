"""Chooses documents whose units (such as characters) add up to a quota, exactly if that is possible.

Documents are taken in an order drawn by the seed. For the last units there are five tries, the cheapest
first, until one comes as near as the greatest common divisor of the sizes allows:

1. a subset-sum over at most 512 documents for the last 2,000 units: enough for long texts;
2. the drawn order, without documents that no longer fit: enough if there are very short documents;
3. other numbers of documents of three sizes (few_sizes.py): enough if there are many documents of few sizes,
   or of nearly equal sizes;
4. exchanges of documents that are taken for others, among a few of the sizes;
5. all exchanges that can matter, which decides what the best choice is: see exchange.py. It is left out if it
   would take more than 256 MB (many documents of a few very large sizes); then the choice does not claim to
   be the best.

With only two sizes, tries 2 to 5 are replaced by trying all numbers of documents of each size.

The sums that can be reached are the bits of one big integer: a million documents take a second or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.balance.quotas.exchange import EXCHANGE_BITS, Exchange
from yanmo.balance.quotas.few_sizes import counts_near, number_bounds
from yanmo.common.disk_arrays import all_rows, new_array, numbers_where, slices, sorted_order

Ints = npt.NDArray[np.signedinteger[Any]]
Mask = npt.NDArray[np.bool_]

_POOL = 512
"""Documents of the subset-sum, at most."""
_POOL_BITS = 1 << 29
"""Bits that the sums of the subset-sum take at most (64 MB); a pool of long documents is made smaller."""
_ROOM = 2000
"""Units that are left to the subset-sum, at least: with fewer, some sums cannot be reached."""
_TAIL = 64
"""Documents that are left to the subset-sum, at least, for the same reason."""
_FEW_SIZES = (8, 32, 128)
"""Different sizes that the fourth try exchanges among."""


@dataclass(frozen=True)
class Choice:
    """The documents that were chosen, and what is known about other choices."""

    positions: Ints
    """Ascending."""
    units: int
    """What they hold together."""
    is_best: bool
    """Whether it is proved that no choice with a smaller sum than the target comes nearer to it."""
    above: int | None = None
    """The smallest possible sum above the target; None if it is not known or there is none."""
    keeps_all: bool = False
    """Whether only choices were considered that keep every document at least once."""

    def with_units(self, units: int, *, is_all: bool, keeps_all: bool = False) -> Choice:
        """This choice plus `units` that are taken in any case.

        Args:
            is_all: whether taking these units left out no other choice.
            keeps_all: whether these units are every document once.
        """
        above = None if self.above is None or not is_all else self.above + units
        return Choice(self.positions, self.units + units, self.is_best and is_all, above, keeps_all)


def choose(sizes: Ints, target: int) -> Choice:
    """Documents that hold `target` units together, or as few less as can be found.

    Args:
        sizes: units of the documents (all above 0), in the order in which they should be taken.
        target: units, 0 or more.
    """
    found, units = _choose(sizes, target), int(sizes.sum())
    if found.units == target or found.above is not None or not found.is_best or target >= units:
        return found
    # What is left out of a sum above the target is a sum below what the target leaves out.
    left_out = _choose(sizes, units - target - 1)
    return replace(found, above=units - left_out.units if left_out.is_best else None)


def _choose(sizes: Ints, target: int) -> Choice:
    """As `choose`, with the nearest sum above only if it is found on the way."""
    if target >= int(sizes.sum()):
        return Choice(all_rows(len(sizes)), int(sizes.sum()), is_best=True)
    unit = int(np.gcd.reduce(sizes))
    small, goal = sizes if unit == 1 else sizes // unit, target // unit
    if int(small.max()) == 1:  # all are equal
        return Choice(all_rows(goal), goal * unit, is_best=True, above=(goal + 1) * unit)
    taken = _with_pool(sizes, target)
    if _sum(sizes, taken) // unit == goal:
        return Choice(taken, goal * unit, is_best=True)
    different = np.unique(small)
    if len(different) == 2:
        taken, is_best, above = _of_two_sizes(small, different.tolist(), goal)
    else:
        taken, is_best, above = _exchanged(small, goal, taken)
    return Choice(taken, _sum(sizes, taken), is_best, None if above is None else above * unit)


def _sum(sizes: Ints, chosen: Ints) -> int:
    """The units of some documents."""
    return sum(int(sizes[chosen[some]].sum()) for some in slices(len(chosen)))


def _with_pool(sizes: Ints, target: int) -> Ints:
    taken = max(0, min(_within(sizes, max(target - _ROOM, 0)), len(sizes) - _TAIL))
    left = target - int(sizes[:taken].sum())
    behind = sizes[taken:]
    rest = numbers_where(lambda some: behind[some] <= left, len(behind))
    least = min(_TAIL, EXCHANGE_BITS * 4 // (left + 1))
    pool = _pool(behind, rest, min(_POOL, max(least, _POOL_BITS // (left + 1))))
    chosen = pool[best_subset(behind[pool].tolist(), left)]
    found = new_array(taken + len(chosen), np.int32)
    found[:taken], found[taken:] = all_rows(taken), taken + np.sort(chosen)
    return found


def _within(sizes: Ints, units: int) -> int:
    """How many of the first documents hold at most so many units together."""
    held = 0
    for some in slices(len(sizes)):
        ends = held + np.cumsum(sizes[some])
        if ends[-1] > units:
            return int(some.start) + int(np.searchsorted(ends, units, side="right"))
        held = int(ends[-1])
    return len(sizes)


def _pool(sizes: Ints, rest: Ints, size: int) -> Ints:
    """Documents for the subset-sum: half in their order, half the shortest, for large and for small steps."""
    first = rest[: size // 2]
    others = rest[size // 2 :]
    order = sorted_order(lambda some: [sizes[others[some]]], len(others))
    shortest = others[order[: size - len(first)]]
    return np.concatenate((first, shortest))


def best_subset(sizes: Sequence[int], target: int) -> list[int]:
    """Indexes of `sizes` whose sum is the largest one not above `target`; earlier ones are preferred."""
    within = (1 << (target + 1)) - 1
    reachable = [1]  # reachable[i]: bit s is set when some of the first i sizes add up to s
    for size in sizes:
        reachable.append((reachable[-1] | reachable[-1] << size) & within)
        if reachable[-1] >> target:
            break
    left = reachable[-1].bit_length() - 1
    chosen = []
    for index in range(len(reachable) - 2, -1, -1):
        if not reachable[index] >> left & 1:
            chosen.append(index)
            left -= sizes[index]
    return chosen[::-1]


def _exchanged(sizes: Ints, target: int, found: Ints) -> tuple[Ints, bool, int | None]:
    """The second to fifth try: what is taken, whether that is the best, the nearest sum above.

    Args:
        sizes: units of the documents, without a common divisor.
        found: what the first try took.
    """
    bounds = number_bounds(sizes, target)
    if bounds is not None:
        return np.sort(np.argsort(-sizes, kind="stable")[: bounds[0]]), True, bounds[2]
    taken = _as_they_fit(sizes, target)
    units = int(sizes[taken].sum())
    tries = (np.flatnonzero(taken), found, _by_counts(sizes, target, taken))
    best = max(tries, key=lambda positions: int(sizes[positions].sum()))
    for number in (*_FEW_SIZES, None):
        if int(sizes[best].sum()) == target:
            return best, True, None
        exchange = Exchange.among(sizes, taken, target, number)
        if exchange is None:
            continue
        put_in, take_out, above = exchange.solve(target - units)
        tried = taken.copy()
        tried[put_in], tried[take_out] = True, False
        if int(sizes[tried].sum()) > int(sizes[best].sum()):
            best = np.flatnonzero(tried)
        if exchange.is_complete:
            larger = sizes[sizes > target].tolist()
            sums = [*larger, *([units + above] if above is not None else [])]
            return best, True, min(sums, default=None)
    return best, False, None


def _by_counts(sizes: Ints, target: int, taken: Mask) -> Ints:
    """The third try: the first documents of each size, as many as hold the target; none if not found."""
    different, kind, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    have = np.bincount(kind[taken], minlength=len(different))
    found = counts_near(different, counts, have, target)
    if found is None:
        return np.zeros(0, np.int64)
    order = np.argsort(kind, kind="stable")
    within = np.arange(len(sizes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[within < np.repeat(found[0], counts)])


def _as_they_fit(sizes: Ints, target: int) -> Mask:
    """The second try: takes the documents in their order, each one that still fits."""
    taken, left, rest = np.zeros(len(sizes), np.bool_), target, np.arange(len(sizes))
    while len(rest := rest[sizes[rest] <= left]):
        ends = np.cumsum(sizes[rest])
        number = int(np.searchsorted(ends, left, side="right"))
        taken[rest[:number]] = True
        left -= int(ends[number - 1])
        rest = rest[number:]
    return taken


def _of_two_sizes(sizes: Ints, different: list[int], target: int) -> tuple[Ints, bool, int | None]:
    """The best numbers of documents of two sizes; of equally good ones, the nearest to the drawn order."""
    places = [np.flatnonzero(sizes == size) for size in different]
    some = np.arange(min(len(places[0]), target // different[0]) + 1)
    others = np.minimum((target - some * different[0]) // different[1], len(places[1]))
    sums = some * different[0] + others * different[1]
    drawn = int((_as_they_fit(sizes, target) & (sizes == different[0])).sum())
    at = int(np.lexsort((abs(some - drawn), -sums))[0])
    taken = np.concatenate((places[0][: int(some[at])], places[1][: int(others[at])]))
    one_more = (sums + different[1])[others < len(places[1])]
    more_of_the_first = (some[-1] + 1) * different[0]  # above the target by itself
    above = [*one_more.tolist(), *([int(more_of_the_first)] if some[-1] < len(places[0]) else [])]
    return np.sort(taken), True, min((x for x in above if x > target), default=None)
