"""Which documents are compared: those that share the key of a band.

A worker looks at a few bands of all documents. It reads one file of keys after another and puts the documents
into buckets by the first bits of their keys, as many as a bucket needs to fit into memory; equal keys are in
one bucket. With more than one bucket they lie in scratch files, 12 bytes per document and band.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from yanmo.common.disk_arrays import new_array, slices
from yanmo.common.hash_set import HashSet, distinct
from yanmo.curate.duplicates.shingle_sets import Pairs, make_pairs
from yanmo.curate.duplicates.signing import BAND_COLUMNS
from yanmo.curate.duplicates.sorted_runs import merged, read_array, write_array
from yanmo.curate.plan import Candidates
from yanmo.engine.maps import brought_here, ordered_map

Ints = npt.NDArray[np.signedinteger[Any]]

_ALL_PAIRS = 24
"""Documents in a band that are all compared with one another. Where more share it (a form letter, say), each
is compared with the next two and with the best ones: work stays linear, and the best can replace it."""
_BEST = 4
"""Best ones of such a band."""
FEW = 50_000
"""With no more documents than this, asking workers takes longer than doing it."""
_BANDS_TOGETHER = [BAND_COLUMNS[i : i + 4] for i in range(0, len(BAND_COLUMNS), 4)]
"""Opening a file costs as much as reading a band of 16,384 documents from it."""
PER_BUCKET = 1 << 19
"""Documents of a bucket, about."""
_MOST_BUCKETS = 128
"""Their runs are open together. Above 67 million documents buckets grow."""
_MET = np.dtype([("key", "<u4"), ("position", "<i4"), ("rank", "<i4")])


@dataclass(frozen=True, kw_only=True)
class _Bands:
    columns: tuple[str, ...]
    signed: tuple[Path, ...]
    starts: tuple[int, ...]
    """Of each signed file the number of its first document."""
    position: Path
    """int32 of each document: its position, -1 where it is not compared."""
    rank: Path
    """int32 of each document."""
    buckets: int
    out: Path


def propose(
    scratch: Path,
    signed: Sequence[Path],
    candidates: Candidates,
    unique: Ints,
    workers: int,
    per_bucket: int = PER_BUCKET,
) -> list[Path]:
    """Runs (sorted_runs.py) of the pairs of positions that share a band.

    Args:
        scratch: a folder for them, and for what goes between.
        unique: indexes into `candidates`, one per text, in the order of positions.
    """
    position = compared_positions(candidates, unique)
    compared = sum(int(np.count_nonzero(position[some] >= 0)) for some in slices(len(position)))
    write_array(scratch / "position", position)
    write_array(scratch / "rank", candidates.ranks.astype(np.int32, copy=False))
    wanted = -(-compared // per_bucket)
    tasks = (
        _Bands(
            columns=names,
            signed=tuple(signed),
            starts=tuple(candidates.starts.tolist()),
            position=scratch / "position",
            rank=scratch / "rank",
            buckets=min(1 << max(wanted - 1, 0).bit_length(), _MOST_BUCKETS),
            out=scratch / f"{names[0]}.run",
        )
        for names in _BANDS_TOGETHER
    )
    with ordered_map(pairs_of_bands, tasks, workers if len(unique) > FEW else 1) as results:
        return [brought_here(run) for run in results]


def compared_positions(candidates: Candidates, unique: Ints) -> npt.NDArray[np.int32]:
    """Return the position of each candidate, -1 where it is not compared: a copy, or too short."""
    found = new_array(len(candidates), np.int32)
    found[:] = -1
    for some in slices(len(unique)):
        index = unique[some]
        is_long = candidates.is_long[index]
        found[index[is_long]] = np.flatnonzero(is_long) + some.start
    return found


def pairs_of_bands(task: _Bands) -> Path:
    """Write the run of the pairs that share a key in one of some bands; returns its file."""
    if task.buckets == 1:
        write_array(task.out, _pairs([np.concatenate(parts) for parts in zip(*_met(task), strict=True)]))
        return task.out
    runs = [_bucket(task, "run", number) for number in range(task.buckets)]
    _spill(task)
    for number, run in enumerate(runs):
        paths = [_bucket(task, name, number) for name in task.columns]
        write_array(run, _pairs([read_array(path, _MET) for path in paths]))
        for path in paths:
            path.unlink()
    with task.out.open("wb"):
        pass
    for some in merged(runs):
        write_array(task.out, some, "ab")
    for run in runs:
        run.unlink()
    return task.out


def _bucket(task: _Bands, name: str, number: int) -> Path:
    return task.out.with_name(f"{task.out.stem}-{name}-{number:03d}")


def _spill(task: _Bands) -> None:
    """Write the documents of each bucket and band to a file of its own."""
    shift = np.uint32(33 - task.buckets.bit_length())
    for name in task.columns:
        for number in range(task.buckets):
            _bucket(task, name, number).touch()
    for of_file in _met(task):
        for name, met in zip(task.columns, of_file, strict=True):
            which = met["key"] >> shift
            order = np.argsort(which, kind="stable")
            bounds = np.searchsorted(which[order], np.arange(task.buckets + 1))
            for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
                write_array(_bucket(task, name, number), met[order[start:stop]], "ab")


def _met(task: _Bands) -> Iterator[list[npt.NDArray[Any]]]:
    """For each signed file and each band the documents that are compared, as `_MET`."""
    for path, start, stop in zip(task.signed, task.starts[:-1], task.starts[1:], strict=True):
        position = read_array(task.position, np.int32, start, stop - start)
        rows = np.flatnonzero(position >= 0)
        met = np.empty(len(rows), _MET)
        met["position"] = position[rows]
        met["rank"] = read_array(task.rank, np.int32, start, stop - start)[rows]
        table = pq.read_table(path, columns=list(task.columns), partitioning=None)
        of_file = []
        for name in task.columns:
            met["key"] = table[name].to_numpy()[rows]
            of_file.append(met.copy())
        yield of_file


def _pairs(bands: Sequence[npt.NDArray[Any]]) -> Pairs:
    """Return the pairs of some bands, sorted, each once."""
    found = [
        pairs_of_keys(met["key"].copy(), met["position"].astype(np.int64), met["rank"].copy())
        for met in bands
    ]
    return distinct(np.concatenate(found))


def pairs_of_keys(keys: npt.NDArray[np.uint32], positions: Ints, rank: npt.NDArray[Any]) -> Pairs:
    """Pairs of `positions` with equal keys, the smaller position first.

    Args:
        rank: of each position, 0 the best copy of all.
    """
    ordered = np.sort(keys)
    shared = HashSet(ordered[1:][ordered[1:] == ordered[:-1]]).find(keys)
    keys, positions, rank = keys[shared], positions[shared], rank[shared]
    order = np.lexsort((rank, keys))
    keys, positions = keys[order], positions[order]
    bounds = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1], [True])))
    sizes = np.diff(bounds)
    start, size = np.repeat(bounds[:-1], sizes), np.repeat(sizes, sizes)
    place = np.arange(len(keys)) - start
    pairs = [np.zeros(0, np.uint64)]
    for step in range(1, _ALL_PAIRS):
        chosen = np.flatnonzero((place + step < size) & ((size <= _ALL_PAIRS) | (step <= 2)))
        pairs.append(_ordered(positions[chosen], positions[chosen + step]))
    for best in range(_BEST):
        chosen = np.flatnonzero((size > _ALL_PAIRS) & (place > best))
        pairs.append(_ordered(positions[chosen], positions[start[chosen] + best]))
    return distinct(np.concatenate(pairs))


def _ordered(one: Ints, other: Ints) -> Pairs:
    return make_pairs(np.minimum(one, other), np.maximum(one, other))
