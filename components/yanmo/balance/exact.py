"""Choosing documents whose units (characters, say) add up to a quota, to the last one where that can be done.

Documents are taken in an order drawn by the seed until the quota is nearly full; the last 2,000 units
are a subset-sum over short documents that were not taken. Bits of one big integer mark the sums
that can be reached, so that a pool of hundreds of documents costs milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_POOL = 512
"""Documents that the last units are made up from, at most."""
_POOL_BITS = 1 << 29
"""Bits of all the sums that are remembered at most (64 MB); a pool of long documents is made smaller."""
_ROOM = 2000
"""Units left to the pool at least: with less room some sums cannot be reached."""
_TAIL = 64
"""Documents left to the pool at least, for the same reason."""


def drawn_order(ids: Iterable[str], seed: int) -> Ints:
    """Positions of `ids` in an order that depends on the seed and on the ids, not on their order."""
    digests = bytearray()
    for id in ids:
        digests += hashlib.sha256(f"{seed}\0{id}".encode()).digest()
    return order_of(np.frombuffer(bytes(digests), np.uint8).reshape(-1, 32))


def order_of(digests: npt.NDArray[np.uint8]) -> Ints:
    """Positions of 32-byte digests (n, 32) from the smallest to the largest."""
    words = digests.view(">u8").astype(np.uint64)
    return np.lexsort(words.T[::-1]).astype(np.int64)


def choose(sizes: Ints, target: int) -> Ints:
    """Positions of documents that hold `target` units together, or as near below as can be found.

    Args:
        sizes: units of the documents (all above 0), in the order in which they are to be taken.
        target: units, at most their sum.
    """
    ends = np.cumsum(sizes)
    if target >= int(ends[-1]):
        return np.arange(len(sizes))
    taken = int(np.searchsorted(ends, max(target - _ROOM, 0), side="right"))
    taken = max(0, min(taken, len(sizes) - _TAIL))
    left = target - (int(ends[taken - 1]) if taken else 0)
    rest = taken + np.flatnonzero(sizes[taken:] <= left)
    pool = _pool(sizes, rest, min(_POOL, max(_TAIL, _POOL_BITS // (left + 1))))
    return np.sort(np.concatenate((np.arange(taken), pool[best_subset(sizes[pool].tolist(), left)])))


def _pool(sizes: Ints, rest: Ints, size: int) -> Ints:
    """Half of the pool as documents come, half the shortest: both large steps and fine ones."""
    first = rest[: size // 2]
    others = rest[size // 2 :]
    shortest = others[np.argsort(sizes[others], kind="stable")[: size - len(first)]]
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
