"""Runs of Han characters (or of words too) of some texts, and where they occur in other texts; exact.

The few texts that are looked for are indexed, not the many that are searched: their windows of n characters
are hashed to 64 bits and sorted, the others stream past, and every find is compared character by character.
Memory: about 60 bytes per character looked for and per character of one batch, whatever the size of the
training text; 3.4 million characters take 0.2 CPU-seconds (benchmarks/baselines.py at 12c635da).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.unsignedinteger[Any]]
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Cutting = Callable[[Sequence[str]], tuple[Codes, Ints]]
"""`han_codes`, or `units` of yanmo.chinese.text_runs."""
_BASES = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xAEF17502108EF2D9)
"""Odd multipliers; the next is taken when two different windows share a hash."""
_FILTER_BITS = 22
_FIRST_FILTER = np.uint64(64 - _FILTER_BITS)
_HAN = ((0x3007, 0x3007), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))


def han_codes(texts: Sequence[str]) -> tuple[Codes, Ints]:
    """The Han characters of all texts, one after the other, and the index of the text each lies in."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    chosen = np.zeros(len(codes), np.bool_)
    for low, high in _HAN:
        chosen |= (codes >= low) & (codes <= high)
    return codes[chosen], owner[chosen]


def _hashed(codes: Codes, length: int, base: int) -> Hashes:
    """A hash of every run of `length` codes, across boundaries of texts too; its high bits are mixed."""
    count = max(0, len(codes) - length + 1)
    hashes, factor = np.zeros(count, np.uint64), np.uint64(base)
    for offset in range(length):
        hashes *= factor
        hashes += codes[offset : offset + count]
    hashes ^= hashes >> np.uint64(31)
    hashes *= factor
    return hashes


def _inside(owner: Ints, length: int) -> Bools:
    count = max(0, len(owner) - length + 1)
    return np.asarray(owner[:count] == owner[len(owner) - count :])


@dataclass(frozen=True)
class Finds:
    """Where windows occur in searched texts: parallel arrays, in the order of `place`."""

    window: Ints
    """Number of the distinct window."""
    place: Ints
    """Han characters before it in the searched texts, counted through all of them."""
    text: Ints
    """Index of the searched text."""


class Windows:
    """The distinct windows of `length` Han characters (or of what `cut` gives) of some texts."""

    def __init__(self, texts: Sequence[str], length: int, cut: Cutting = han_codes) -> None:
        self.length, self.texts, self._cut = length, len(texts), cut
        self._codes, self._owner = cut(texts)
        self.places = np.flatnonzero(_inside(self._owner, length))
        """Where windows begin, in the Han characters counted through all texts."""
        self.text = self._owner[self.places]
        """The text of each window."""
        for self._base in _BASES:
            hashes = _hashed(self._codes, length, self._base)[self.places]
            self._hashes, first, self.number = np.unique(hashes, return_index=True, return_inverse=True)
            self._shown = self.places[first]
            if self._equal(self._codes, self.places, self.number).all():
                break
        else:
            raise ValueError(f"different runs of {length} characters share a hash under every multiplier")
        self._filter = np.zeros(1 << _FILTER_BITS, np.bool_)
        self._filter[self._hashes >> _FIRST_FILTER] = True

    def __len__(self) -> int:
        """Return how many different windows there are."""
        return len(self._hashes)

    def _equal(self, codes: Codes, places: Ints, numbers: Ints) -> Bools:
        """Return whether the runs at `places` are the windows of these numbers, character by character."""
        same = np.ones(len(places), np.bool_)
        for offset in range(self.length):
            same &= codes[places + offset] == self._codes[self._shown[numbers] + offset]
        return same

    def find(self, texts: Sequence[str]) -> Finds:
        """All occurrences of the windows inside `texts`."""
        codes, owner = self._cut(texts)
        hashes = _hashed(codes, self.length, self._base)
        places = np.flatnonzero(self._filter[hashes >> _FIRST_FILTER] & _inside(owner, self.length))
        if not len(self) or not len(places):
            return Finds(*(np.empty(0, np.int64) for _ in range(3)))
        numbers = np.searchsorted(self._hashes, hashes[places]).clip(max=len(self) - 1)
        known = self._hashes[numbers] == hashes[places]
        places, numbers = places[known], numbers[known]
        exact = self._equal(codes, places, numbers)
        places, numbers = places[exact], numbers[exact]
        return Finds(numbers, places, owner[places])
