"""Documents that are taken exchanged for others, so that their sum comes nearer to a quota."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.signedinteger[Any]]
Mask = npt.NDArray[np.bool_]

EXCHANGE_BITS = 1 << 31
"""Bits that all sums of an exchange take at most (256 MB)."""
_FEW_BITS = 1 << 29
"""The same for an exchange among a few sizes, roughly."""
_OF_A_SIZE = 7
"""Documents of each size that are exchanged among a few sizes."""


@dataclass(frozen=True)
class Exchange:
    """Some documents taken out and others put in, so that the sum comes as near to the target as can be.

    Let z be the sum of what is taken, u the largest size, t a sum with z <= t <= z + u that some choice has,
    and x that choice of sum t that differs from what is taken by the fewest documents. Go to x one document
    at a time: put one in while the sum is below t, take one out while it is above. No sum comes twice, and t
    only at the end, as otherwise the documents in between could be left out of the difference. So at most u
    documents are put in (at sums t - u to t - 1) and fewer than u taken out (at sums t + 1 to t + u - 1).
    Hence only u documents of each size need to be considered, and fewer than u * u units are taken out: bits
    for so many sums, and not for all units of the text.
    """

    put_in: list[tuple[int, Ints]]
    """Not taken so far: (size, documents of that size in the order in which they are put in)."""
    take_out: list[tuple[int, Ints]]
    """Taken so far: (size, documents of that size in the order in which they are taken out)."""
    most_out: int
    """Units that are taken out at most."""
    most_more: int
    """Units by which the sum may grow at most."""
    is_complete: bool
    """Whether no other exchange can matter."""

    @classmethod
    def among(cls, sizes: Ints, taken: Mask, target: int, number: int | None) -> Exchange | None:
        """The exchanges among `number` sizes (the smallest, and some spread over all), or among all sizes.

        Returns:
            None if the sums would take too much memory.
        """
        usable = sizes <= target
        outside = _by_size(sizes, np.flatnonzero(usable & ~taken))
        inside = _by_size(sizes, np.flatnonzero(usable & taken)[::-1])
        if number is not None:
            inside, outside = _few(inside, number), _few(outside, number)
        largest = max((size for size, _ in (*inside, *outside)), default=0)
        units_in, units_out = (_units(side, largest) for side in (outside, inside))
        most_out = min(largest * largest, units_in, units_out)
        more = max(largest, target - int(sizes[taken].sum()))
        if number is not None:
            inside, outside = ([(n, places[:_OF_A_SIZE]) for n, places in side] for side in (inside, outside))
            steps = sum(len(places).bit_length() for _, places in (*inside, *outside))
            most_out = min(most_out, _FEW_BITS // (steps + 1))
        outside = [(size, places[: min(largest, (most_out + more) // size)]) for size, places in outside]
        inside = [(size, places[: min(largest, most_out // size)]) for size, places in inside]
        steps = sum(len(places).bit_length() for _, places in (*inside, *outside))
        if (most_out + more + 1) * (steps + 1) > EXCHANGE_BITS:
            return None
        return cls(outside, inside, most_out, more, number is None)

    def solve(self, missing: int) -> tuple[Ints, Ints, int | None]:
        """Documents to put in and to take out, so that the sum grows by `missing` units or as few less as can
        be; and the smallest growth above `missing`, None if there is none."""
        parts = [(-size, places, part) for size, places in self.take_out for part in _parts(len(places))]
        parts += [(size, places, part) for size, places in self.put_in for part in _parts(len(places))]
        within = (1 << (self.most_out + self.most_more + 1)) - 1
        reachable = [1 << self.most_out]  # bit most_out + d: the sum can change by d
        for size, _, part in parts:
            last, shift = reachable[-1], size * part
            reachable.append((last | (last << shift if shift > 0 else last >> -shift)) & within)
            if reachable[-1] >> (self.most_out + missing) & 1:
                break
        goal = self.most_out + missing
        above = reachable[-1] >> (goal + 1)
        at = (reachable[-1] & ((1 << (goal + 1)) - 1)).bit_length() - 1
        used: dict[int, int] = {}
        for index in range(len(reachable) - 2, -1, -1):
            if not reachable[index] >> at & 1:
                size, _, part = parts[index]
                used[size] = used.get(size, 0) + part
                at -= size * part
        found = [_first(used, 1, self.put_in), _first(used, -1, self.take_out)]
        return found[0], found[1], missing + (above & -above).bit_length() if above else None


def _by_size(sizes: Ints, places: Ints) -> list[tuple[int, Ints]]:
    """Documents of each size, in the order given."""
    order = places[np.argsort(sizes[places], kind="stable")]
    different, starts = np.unique(sizes[order], return_index=True)
    return list(zip(different.tolist(), np.split(order, starts[1:]), strict=False))


def _units(groups: list[tuple[int, Ints]], most: int) -> int:
    """Units of at most `most` documents of each size."""
    return sum(size * min(len(places), most) for size, places in groups)


def _few(groups: list[tuple[int, Ints]], number: int) -> list[tuple[int, Ints]]:
    if not groups:
        return []
    spread = np.linspace(0, len(groups) - 1, number // 2).astype(int).tolist()
    return [groups[i] for i in sorted({*range(min(number // 2, len(groups))), *spread})]


def _parts(number: int) -> list[int]:
    """Numbers that add up to any from 0 to `number`: 1, 2, 4 ... and the rest."""
    found: list[int] = []
    while number > 0:
        found.append(min(1 << len(found), number))
        number -= found[-1]
    return found


def _first(used: dict[int, int], sign: int, groups: list[tuple[int, Ints]]) -> Ints:
    return np.concatenate(
        [np.zeros(0, np.int64), *(places[: used.get(sign * size, 0)] for size, places in groups)]
    )
