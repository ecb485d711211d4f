"""Sets of shingles, and the exact similarity of any two of them.

The sets of a corpus' proposed documents are written one after the other to a scratch file and memory-mapped,
so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.hash_set import distinct
from yanmo.common.jit import compiled
from yanmo.common.ordered_map import ordered_map
from yanmo.curate.duplicates.shingles import shingle_hashes
from yanmo.curate.mapped_texts import read_texts
from yanmo.curate.plan import Candidates
from yanmo.formats.documents import shard_bounds

Ints = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.uint64]
"""first << 32 | second: two positions, or indexes of two texts"""

_LOW = np.uint64(0xFFFFFFFF)


def make_pairs(first: Any, second: Any) -> Pairs:
    """Pairs of two arrays of positions."""
    return np.asarray(first.astype(np.uint64) << np.uint64(32) | second.astype(np.uint64))


def take_apart(pairs: Pairs) -> tuple[Ints, Ints]:
    """The first and the second positions of pairs."""
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

    @classmethod
    def gather(
        cls,
        scratch: Path,
        mapped: Sequence[Path],
        candidates: Candidates,
        unique: Ints,
        pairs: Pairs,
        workers: int,
    ) -> ShingleSets:
        """The sets of all documents in `pairs`; each file is read once."""
        needed = distinct(np.concatenate(take_apart(pairs)))
        file = candidates.file[unique[needed]]
        by_file = np.argsort(file, kind="stable")
        start, size = np.full(len(unique), -1, np.int64), np.zeros(len(unique), np.int32)
        groups = np.split(needed[by_file], np.flatnonzero(np.diff(file[by_file])) + 1) if len(needed) else []

        def tasks() -> Iterator[_File]:
            for number, positions in enumerate(groups):
                index = unique[positions]
                yield _File(
                    mapped=mapped[candidates.file[index[0]]],
                    rows=candidates.row[index],
                    out=scratch / f"set-{number}.npy",
                )

        total, path = 0, scratch / "hashes.bin"
        with path.open("wb") as file_out, ordered_map(write_sets, tasks(), workers) as results:
            for positions, (sizes, out) in zip(groups, results, strict=True):
                np.load(out).tofile(file_out)
                out.unlink()
                size[positions] = sizes
                start[positions] = total + np.cumsum(sizes) - sizes
                total += int(sizes.sum())
        hashes = np.memmap(path, np.uint32, mode="r") if total else np.zeros(0, np.uint32)
        return cls(hashes=hashes, start=start, size=size)

    @classmethod
    def of(cls, texts: Sequence[str]) -> ShingleSets:
        """The sets of `texts`, positions being their indexes."""
        hashes, sizes = sets_of(texts)
        return cls(hashes=hashes, start=np.cumsum(sizes) - sizes, size=sizes.astype(np.int32))


def write_sets(task: _File) -> tuple[Ints, Path]:
    """Write the shingle sets of some rows of a mapped file; their sizes and the file."""
    hashes, sizes = sets_of(read_texts(task.mapped, task.rows))
    np.save(task.out, hashes)
    return sizes, task.out


def sets_of(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], Ints]:
    """Each text's shingle hashes, sorted and each once, one text after the other; and their numbers."""
    hashes, owner = shingle_hashes(texts)
    both = distinct(owner.astype(np.uint64) << np.uint64(32) | hashes)
    sizes = np.bincount((both >> np.uint64(32)).astype(np.int64), minlength=len(texts))
    return both.astype(np.uint32), sizes


def similarities(pairs: Pairs, sets: ShingleSets) -> npt.NDArray[np.float64]:
    """The Jaccard similarity of each pair."""
    first, second = take_apart(pairs)
    total = sets.size[first].astype(np.int64) + sets.size[second]
    shared = np.zeros(len(pairs), np.int64)
    if total.sum() > _COMPILED_FROM:
        _count_shared(sets.hashes, sets.start, sets.size, first, second, shared)
    else:
        for start, stop in shard_bounds(total, _SORTED_AT_A_TIME):
            shared[start:stop] = _shared_by_sorting(sets, first[start:stop], second[start:stop])
    return np.asarray(shared / np.maximum(total - shared, 1))


_COMPILED_FROM = 30_000_000
"""Hashes from which on it pays to load numba (1.2 s of CPU): sorting takes 40 ns per hash, the loop 1."""
_SORTED_AT_A_TIME = 1 << 20


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
