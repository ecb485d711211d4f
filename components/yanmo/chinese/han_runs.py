"""Runs of Han characters that texts share: they reveal quotations, which comparing whole texts cannot.

A history quotes a memorial at length, a preface quotes a poem. Every run of n Han characters of some texts
(without punctuation and line breaks) is hashed to 64 bits, and so is every run of the others, in numpy, at
about 7 million characters per second and core. In a corpus of 10^9 characters, compared with 10^6 runs, the
chance of a single false match is 5 in 100,000.

`curate` (train against the evaluation set and benchmarks) and `balance` (augmented copies against held-out
text) both use this file, so that they agree on what a run is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from yanmo.common.hash_set import HashSet, distinct

Hashes = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

HAN_RANGES = ((0x3007, 0x3008), (0x3400, 0xA000), (0x20000, 0x40000))
"""Code points of Han characters (from, to before): the zero 〇 and ideographs; without compatibility
ideographs, which normalization replaces."""

_BASE = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
_MIX = np.uint64(0xBF58476D1CE4E5B9)  # splitmix64's multiplier


@lru_cache(maxsize=1)
def _counts_table() -> Bools:
    """Whether a code point is a Han character or the end of a text."""
    table = np.zeros(0x110000, dtype=np.bool_)
    for low, high in HAN_RANGES:
        table[low:high] = True
    table[0] = True
    return table


def run_hashes(texts: Sequence[str], length: int) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Hashes of every run of `length` Han characters, and the index of the text each lies in."""
    codes = np.frombuffer("\0".join([*texts, ""]).encode("utf-32-le"), dtype=np.uint32)
    codes = codes[_counts_table()[codes]]
    is_end = codes == 0
    owner = np.cumsum(is_end)[~is_end]
    codes = codes[~is_end]
    count = len(codes) - length + 1
    if count <= 0:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    hashes = np.zeros(count, dtype=np.uint64)
    for offset in range(length):
        hashes *= _BASE
        hashes += codes[offset : offset + count]
    hashes ^= hashes >> np.uint64(30)
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(27)
    inside = owner[:count] == owner[length - 1 :]
    return hashes[inside], owner[:count][inside]


@dataclass(frozen=True)
class Runs:
    """The runs of some texts, such as an evaluation set."""

    length: int
    hashes: Hashes
    """Sorted, each once."""

    @classmethod
    def of(cls, texts: Sequence[str], length: int) -> Runs:
        """The runs of `length` Han characters in `texts`."""
        return cls(length, distinct(run_hashes(texts, length)[0]))

    @cached_property
    def _set(self) -> HashSet:
        return HashSet(self.hashes)

    def of_texts(self, texts: Sequence[str]) -> tuple[Hashes, npt.NDArray[np.int64]]:
        """Every run of `texts`, in order, and the index of the text each lies in."""
        return run_hashes(texts, self.length)

    def shares(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.float64], Hashes]:
        """The share of each text's Han characters that lies in shared runs, and these runs, sorted."""
        result = np.zeros(len(texts))
        if not len(self.hashes):
            return result, self.hashes
        hashes, owner = run_hashes(texts, self.length)
        at = self._set.find(hashes)
        if len(at):
            whose = owner[at]
            more = np.diff(at, prepend=0)  # characters by which a run goes beyond the one before it
            more[np.diff(whose, prepend=-1) > 0] = self.length
            covered = np.bincount(whose, weights=np.minimum(more, self.length), minlength=len(texts))
            han = np.bincount(owner, minlength=len(texts)) + self.length - 1
            result = covered / han
        return result, distinct(hashes[at])

    def longest(self, text: str) -> str:
        """The Han characters of the longest part of `text` that lies in shared runs one after another."""
        at = self._set.find(run_hashes([text], self.length)[0])
        if not len(at):
            return ""
        parts = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
        part = max(parts, key=len)
        han = [c for c in text if c != "\0" and _counts_table()[ord(c)]]
        return "".join(han[part[0] : part[-1] + self.length])

    def shared_with(self, texts: Sequence[str]) -> tuple[Bools, Hashes]:
        """Whether each text shares a run, and the shared runs, sorted."""
        shares, hashes = self.shares(texts)
        return shares > 0, hashes

    def documents_with(self, texts: Sequence[str]) -> tuple[Hashes, npt.NDArray[np.int64]]:
        """Those of these runs that the texts hold, sorted, and how many of the texts hold each."""
        hashes, owner = run_hashes(texts, self.length)
        shared = self._set.find(hashes)
        hashes, owner = hashes[shared], owner[shared]
        order = np.argsort(hashes, kind="stable")  # owners rise, so those of one run stay in order
        hashes, owner = hashes[order], owner[order]
        differs = np.ones(len(hashes), dtype=np.bool_)
        differs[1:] = (hashes[1:] != hashes[:-1]) | (owner[1:] != owner[:-1])
        found = distinct(hashes)
        return found, np.bincount(np.searchsorted(found, hashes[differs]), minlength=len(found))

    def without(self, hashes: Hashes) -> Runs:
        """These runs without those with the given hashes."""
        return Runs(self.length, np.setdiff1d(self.hashes, hashes, assume_unique=True))

    def touched_in(self, texts: Sequence[str]) -> Runs:
        """The runs of `texts` that overlap one of these runs wherever they occur in `texts`."""
        hashes, owner = run_hashes(texts, self.length)
        at = self._set.find(hashes)  # the runs of a text follow each other, each one character further on
        touched = np.zeros(len(hashes), dtype=np.bool_)
        for offset in range(1 - self.length, self.length):
            near = at + offset
            inside = (near >= 0) & (near < len(hashes))
            inside[inside] = owner[near[inside]] == owner[at[inside]]
            touched[near[inside]] = True
        free = distinct(hashes[~touched])
        return Runs(self.length, distinct(hashes[touched])).without(free)

    def found_in(self, texts: Sequence[str]) -> Bools:
        """Whether each text shares a run."""
        return self.shared_with(texts)[0]
