"""Sets of shingles, and the exact similarity of any two of them.

The sets of a corpus' proposed documents are written one after the other to a scratch file and memory-mapped.
The system counts what was read of such a file as this process's memory, so that is let go after each window
of pairs.
"""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.errors import naming
from yanmo.common.freed_memory import drop_pages
from yanmo.common.hash_set import distinct
from yanmo.common.jit import compiled
from yanmo.curate.duplicates.shingles import shingle_hashes
from yanmo.curate.mapped_texts import read_texts
from yanmo.formats.documents import shard_bounds

Ints = npt.NDArray[np.signedinteger[Any]]
Hashes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Sets:
    """The sorted shingle hashes of some documents, in one array."""

    hashes: Hashes
    start: Ints
    """Where each document's hashes begin."""
    size: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> Sets:
        """Return the sets of `texts`."""
        hashes, sizes = sets_of(texts)
        return cls(hashes, np.cumsum(sizes) - sizes, sizes)

    def take(self, index: Any) -> Sets:
        """Return those of some documents."""
        return Sets(self.hashes, self.start[index], self.size[index])


class SetsFile:
    """Sets in a file, one after another."""

    def __init__(self, path: Path) -> None:
        self._path, self._length = path, 0
        path.touch()

    def append(self, out: Path, sizes: Ints) -> Ints:
        """Move the sets in `out` to the end of the file; where each begins."""
        with naming(self._path), self._path.open("ab") as file, out.open("rb") as own:
            shutil.copyfileobj(own, file)
        out.unlink()
        ends = self._length + np.cumsum(sizes)
        self._length += int(sizes.sum())
        return np.asarray(ends - sizes)

    @cached_property
    def pages(self) -> mmap.mmap | None:
        """The file, mapped into memory once all are in it; None where there are none."""
        if not self._length:
            return None
        with self._path.open("rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):  # sets are read in no order: what is read ahead of one is not used
            pages.madvise(mmap.MADV_RANDOM)
        return pages

    @cached_property
    def hashes(self) -> Hashes:
        """The hashes of all sets."""
        return np.frombuffer(self.pages or b"", np.uint32)


@dataclass(frozen=True, kw_only=True)
class SetsTask:
    """Rows of a mapped file whose sets are wanted."""

    mapped: Path
    rows: npt.NDArray[np.int32]
    out: Path


def write_sets(task: SetsTask) -> tuple[Ints, Path]:
    """Write the shingle sets of some rows of a mapped file; their sizes and the file."""
    hashes, sizes = sets_of(read_texts(task.mapped, task.rows))
    with naming(task.out), task.out.open("wb") as file:
        file.write(hashes.data)
    return sizes, task.out


def sets_of(texts: Sequence[str]) -> tuple[Hashes, Ints]:
    """Return the sorted shingle hashes of each text, one text after the other; and their numbers."""
    hashes, owner = shingle_hashes(texts)
    both = distinct(owner.astype(np.uint64) << np.uint64(32) | hashes)
    sizes = np.bincount((both >> np.uint64(32)).astype(np.int64), minlength=len(texts))
    return both.astype(np.uint32), sizes


_COMPILED_FROM = 30_000_000
"""Hashes from which on it pays to load numba (1.2 s of CPU): sorting takes 40 ns per hash, the loop 1."""
_SORTED_AT_A_TIME = 1 << 20
_WINDOW_BYTES = 64 << 20
_AROUND_BYTES = 64 << 10
"""What Linux maps around a page that is read (fault_around_bytes)."""


def similarities(
    one: Sets, other: Sets, pages: mmap.mmap | None = None, window_bytes: int = _WINDOW_BYTES
) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarity of each pair: of the i-th set of `one` and the i-th of `other`.

    Args:
        pages: the file that the hashes lie in; None where they are in memory.
        window_bytes: how much of it is in memory together, about.
    """
    total = one.size + other.size
    shared = np.zeros(len(total), np.int64)
    compare = _count_shared if total.sum() > _COMPILED_FROM else _count_by_sorting
    for window in _windows(one.hashes, total, pages, window_bytes):
        a, b = one.take(window), other.take(window)
        compare(a.hashes, a.start, a.size, b.hashes, b.start, b.size, shared[window])
    return np.asarray(shared / np.maximum(total - shared, 1))


def _windows(hashes: Hashes, total: Ints, pages: mmap.mmap | None, window_bytes: int) -> Iterator[slice]:
    """Ranges of pairs whose sets are in memory together; what was read is let go after each."""
    if pages is None or hashes.nbytes <= window_bytes:
        yield slice(0, len(total))
        return
    for start, stop in shard_bounds(2 * _AROUND_BYTES + total * hashes.itemsize, window_bytes):
        yield slice(start, stop)
        drop_pages(pages)


def _count_by_sorting(
    a: Any, a_start: Any, a_size: Any, b: Any, b_start: Any, b_size: Any, shared: Any
) -> None:
    """Set for each pair how many hashes its two sets have in common."""
    for start, stop in shard_bounds(a_size + b_size, _SORTED_AT_A_TIME):
        number, parts = np.arange(stop - start, dtype=np.uint64) << np.uint64(32), []
        for hashes, begin, size in ((a, a_start, a_size), (b, b_start, b_size)):
            size = size[start:stop]
            ends = np.cumsum(size)
            within = np.arange(size.sum()) - np.repeat(ends - size, size)
            parts.append(np.repeat(number, size) | hashes[np.repeat(begin[start:stop], size) + within])
        both = np.sort(np.concatenate(parts))
        twice = both[1:][both[1:] == both[:-1]]
        shared[start:stop] = np.bincount((twice >> np.uint64(32)).astype(np.int64), minlength=stop - start)


@compiled
def _count_shared(a: Any, a_start: Any, a_size: Any, b: Any, b_start: Any, b_size: Any, shared: Any) -> None:
    """The same, by a loop over two sorted sets."""
    for n in range(a_start.shape[0]):
        i, j = a_start[n], b_start[n]
        i_end, j_end = i + a_size[n], j + b_size[n]
        while i < i_end and j < j_end:
            if a[i] == b[j]:
                shared[n] += 1
                i += 1
                j += 1
            elif a[i] < b[j]:
                i += 1
            else:
                j += 1
