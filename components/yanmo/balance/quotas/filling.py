"""Chooses documents whose units (such as characters) add up to a quota, or to less by a part of a document.

Documents are taken in an order drawn by the seed, and those of the last 2,000 units by a subset-sum over at
most 512 documents: ordinary text comes out exact. Where it does not (many documents of few sizes), the drawn
order goes on instead without documents that no longer fit: what is missing is less than the smallest of those
left. The sums that can be reached are the bits of one big integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.disk_arrays import all_rows, new_array, numbers_where, slices, sorted_order

Ints = npt.NDArray[np.signedinteger[Any]]

_POOL = 512
"""Documents of the subset-sum, at most."""
_POOL_BITS = 1 << 29
"""Bits that the sums of the subset-sum take at most (64 MB); a pool of long documents is made smaller."""
_ROOM = 2000
"""Units that are left to the subset-sum, at least: with fewer, some sums cannot be reached."""
_TAIL = 64
"""Documents that are left to the subset-sum, at least, for the same reason."""


def choose(sizes: Ints, target: int) -> Ints:
    """Return documents that hold `target` units together, or fewer by less than one of those left; ascending.

    Args:
        sizes: units of the documents (all above 0), in the order in which they should be taken.
        target: units, 0 or more.
    """
    if target >= int(sizes.sum()):
        return all_rows(len(sizes))
    taken = _with_pool(sizes, target)
    missing = target - _sum(sizes, taken)
    if not missing:
        return taken
    fitting = _as_they_fit(sizes, target)
    return fitting if target - _sum(sizes, fitting) <= missing else taken


def _sum(sizes: Ints, chosen: Ints) -> int:
    """Return the units of some documents."""
    return sum(int(sizes[chosen[some]].sum()) for some in slices(len(chosen)))


def _with_pool(sizes: Ints, target: int) -> Ints:
    taken = max(0, min(_within(sizes, max(target - _ROOM, 0)), len(sizes) - _TAIL))
    left = target - int(sizes[:taken].sum())
    behind = sizes[taken:]
    rest = numbers_where(lambda some: behind[some] <= left, len(behind))
    pool = _pool(behind, rest, min(_POOL, _POOL_BITS // (left + 1)))
    chosen = pool[best_subset(behind[pool].tolist(), left)]
    found = new_array(taken + len(chosen), np.int32)
    found[:taken], found[taken:] = all_rows(taken), taken + np.sort(chosen)
    return found


def _within(sizes: Ints, units: int) -> int:
    """Return how many of the first documents hold at most so many units together."""
    held = 0
    for some in slices(len(sizes)):
        ends = held + np.cumsum(sizes[some])
        if ends[-1] > units:
            return int(some.start) + int(np.searchsorted(ends, units, side="right"))
        held = int(ends[-1])
    return len(sizes)


def _pool(sizes: Ints, rest: Ints, size: int) -> Ints:
    """Return documents for the subset sum: half in their order, half the shortest, for small steps."""
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


def _as_they_fit(sizes: Ints, target: int) -> Ints:
    """Return the documents in their order, each one that still fits."""
    taken, left = np.zeros(len(sizes), np.bool_), target
    for some in slices(len(sizes)):
        rest = np.arange(some.start, min(some.stop, len(sizes)))
        while len(rest := rest[sizes[rest] <= left]):
            ends = np.cumsum(sizes[rest])
            number = int(np.searchsorted(ends, left, side="right"))
            taken[rest[:number]] = True
            left -= int(ends[number - 1])
            rest = rest[number:]
    return np.flatnonzero(taken)
