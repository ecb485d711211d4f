"""Sets of shingles, and the exact similarity of any two of them.

The sets of a corpus' proposed documents are written one after the other to a scratch file and memory-mapped.
The system counts what was read of such a file as this process's memory, so that is let go after each window
of pairs.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.disk_arrays import new_array, numbers_where, taken
from yanmo.common.freed_memory import drop_pages
from yanmo.common.hash_set import distinct
from yanmo.common.jit import compiled
from yanmo.curate.duplicates.shingles import shingle_hashes
from yanmo.curate.duplicates.sorted_runs import merged, read_array, write_array
from yanmo.curate.mapped_texts import read_texts
from yanmo.curate.plan import Candidates
from yanmo.engine.maps import brought_here, ordered_map
from yanmo.formats.documents import shard_bounds
from yanmo.formats.row_numbers import by_file

Ints = npt.NDArray[np.signedinteger[Any]]
Pairs = npt.NDArray[np.uint64]
"""first << 32 | second: two positions, or indexes of two texts"""

_LOW = np.uint64(0xFFFFFFFF)


def make_pairs(first: Any, second: Any) -> Pairs:
    """Pairs of two arrays of positions."""
    return np.asarray(first.astype(np.uint64) << np.uint64(32) | second.astype(np.uint64))


def take_apart(pairs: Pairs) -> tuple[Ints, Ints]:
    """Return the first and the second positions of pairs."""
    return (pairs >> np.uint64(32)).astype(np.int64), (pairs & _LOW).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class _File:
    mapped: Path
    rows: npt.NDArray[np.int32]
    out: Path


@dataclass(frozen=True, kw_only=True)
class ShingleSets:
    """The sorted shingle hashes of some documents."""

    hashes: npt.NDArray[np.uint32]
    start: Ints
    """Where each position's hashes begin; -1 for documents that are not here."""
    size: npt.NDArray[np.int32]
    pages: mmap.mmap | None = None
    """The file that `hashes` lie in; None where they are in memory."""
    window_bytes: int = 64 << 20
    """How much of the file is in memory together, about."""

    @classmethod
    def gather(
        cls,
        scratch: Path,
        mapped: Sequence[Path],
        candidates: Candidates,
        unique: Ints,
        runs: Sequence[Path],
        workers: int,
    ) -> ShingleSets:
        """Return the sets of all documents in the pairs of `runs`; each file is read once."""
        needed = _documents_in(runs, len(unique))
        start, size = new_array(len(unique), np.int64), new_array(len(unique), np.int32)
        start[:] = -1
        groups: deque[Ints] = deque()

        def tasks() -> Iterator[_File]:
            for number, group, rows in by_file(candidates.starts, taken(unique, needed)):
                groups.append(group)
                yield _File(mapped=mapped[number], rows=rows, out=scratch / f"set-{number}")

        total, path = 0, scratch / "hashes.bin"
        path.touch()
        with ordered_map(write_sets, tasks(), workers) as results:
            for sizes, out in results:
                here = brought_here(out)
                write_array(path, read_array(here, np.uint32), "ab")
                here.unlink()
                positions = needed[groups.popleft()]
                size[positions] = sizes
                start[positions] = total + np.cumsum(sizes) - sizes
                total += int(sizes.sum())
        return cls.mapped(path, start, size)

    @classmethod
    def mapped(cls, path: Path, start: Ints, size: npt.NDArray[np.int32]) -> ShingleSets:
        """Return the sets in a file, mapped into memory."""
        if not path.stat().st_size:
            return cls(hashes=np.zeros(0, np.uint32), start=start, size=size)
        with path.open("rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return cls(hashes=np.frombuffer(pages, np.uint32), start=start, size=size, pages=pages)

    @classmethod
    def of(cls, texts: Sequence[str]) -> ShingleSets:
        """Return the sets of `texts`, positions being their indexes."""
        hashes, sizes = sets_of(texts)
        return cls(hashes=hashes, start=np.cumsum(sizes) - sizes, size=sizes.astype(np.int32))

    def windows(self, total: Ints) -> Iterator[slice]:
        """Ranges of pairs whose sets are in memory together; what was read is let go after each.

        Args:
            total: hashes of both sets of each pair.
        """
        if self.pages is None or self.hashes.nbytes <= self.window_bytes:
            yield slice(0, len(total))
            return
        for start, stop in shard_bounds(2 * _AROUND_BYTES + total * self.hashes.itemsize, self.window_bytes):
            yield slice(start, stop)
            drop_pages(self.pages)


_AROUND_BYTES = 64 << 10
"""What Linux maps around a page that is read (fault_around_bytes)."""


def _documents_in(runs: Sequence[Path], count: int) -> Ints:
    """Return the positions, of `count`, that pairs of `runs` hold, rising."""
    is_needed = new_array(count, np.bool_)
    for pairs in merged(runs):
        for positions in take_apart(pairs):
            is_needed[positions] = True
    return numbers_where(lambda some: is_needed[some], count)


def write_sets(task: _File) -> tuple[Ints, Path]:
    """Write the shingle sets of some rows of a mapped file; their sizes and the file."""
    hashes, sizes = sets_of(read_texts(task.mapped, task.rows))
    write_array(task.out, hashes)
    return sizes, task.out


def sets_of(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], Ints]:
    """Return the sorted shingle hashes of each text, one text after the other; and their numbers."""
    hashes, owner = shingle_hashes(texts)
    both = distinct(owner.astype(np.uint64) << np.uint64(32) | hashes)
    sizes = np.bincount((both >> np.uint64(32)).astype(np.int64), minlength=len(texts))
    return both.astype(np.uint32), sizes


def similarities(pairs: Pairs, sets: ShingleSets) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarity of each pair."""
    first, second = take_apart(pairs)
    total = sets.size[first].astype(np.int64) + sets.size[second]
    shared = np.zeros(len(pairs), np.int64)
    compare = _count_by_loop if total.sum() > _COMPILED_FROM else _count_by_sorting
    for window in sets.windows(total):
        compare(sets, first[window], second[window], shared[window])
    return np.asarray(shared / np.maximum(total - shared, 1))


_COMPILED_FROM = 30_000_000
"""Hashes from which on it pays to load numba (1.2 s of CPU): sorting takes 40 ns per hash, the loop 1."""
_SORTED_AT_A_TIME = 1 << 20


def _count_by_sorting(sets: ShingleSets, first: Ints, second: Ints, shared: Ints) -> None:
    """Set for each pair how many hashes its two sets have in common."""
    total = sets.size[first].astype(np.int64) + sets.size[second]
    for start, stop in shard_bounds(total, _SORTED_AT_A_TIME):
        shared[start:stop] = _shared_by_sorting(sets, first[start:stop], second[start:stop])


def _count_by_loop(sets: ShingleSets, first: Ints, second: Ints, shared: Ints) -> None:
    """The same."""
    _count_shared(sets.hashes, sets.start, sets.size, first, second, shared)


def _shared_by_sorting(sets: ShingleSets, first: Ints, second: Ints) -> Ints:
    """For each pair, how many hashes its two sets have in common."""
    number = np.arange(len(first), dtype=np.uint64) << np.uint64(32)
    parts = []
    for positions in (first, second):
        size = sets.size[positions].astype(np.int64)
        ends = np.cumsum(size)
        within = np.arange(size.sum()) - np.repeat(ends - size, size)
        hashes = sets.hashes[np.repeat(sets.start[positions], size) + within]
        parts.append(np.repeat(number, size) | hashes)
    both = np.sort(np.concatenate(parts))
    twice = both[1:][both[1:] == both[:-1]]
    return np.bincount((twice >> np.uint64(32)).astype(np.int64), minlength=len(first))


@compiled
def _count_shared(hashes: Any, start: Any, size: Any, first: Any, second: Any, shared: Any) -> None:
    """For each pair, how many hashes its two sorted sets have in common."""
    for n in range(first.shape[0]):
        i, j = start[first[n]], start[second[n]]
        i_end, j_end = i + size[first[n]], j + size[second[n]]
        while i < i_end and j < j_end:
            if hashes[i] == hashes[j]:
                shared[n] += 1
                i += 1
                j += 1
            elif hashes[i] < hashes[j]:
                i += 1
            else:
                j += 1
