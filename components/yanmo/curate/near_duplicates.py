"""Near duplicates: pairs of documents whose shingles are the same to a given share.

MinHash bands (shingles.py) propose pairs, the exact Jaccard similarity of their shingle sets decides: so
every pair found is a true one, and what bands miss is known (a thousandth at J = 0.55). The obvious way, to
join all documents that share a band as most pipelines do, joins texts that have a fifth in common.

Documents are named by position, their rank in the order of the digests of their Han characters, so that
nothing depends on files. Memory: 4 bytes of key, 8 of rank and 12 of table per document at a time, 8 per
proposed pair; shingle sets of proposed documents lie in a scratch file that is memory-mapped.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.documents import take_rows
from yanmo.common.records import write_parquet
from yanmo.common.store.commit import Attempt, Result
from yanmo.curate.mapped_texts import comparable, form_of_file
from yanmo.curate.plan import Candidates
from yanmo.curate.pool import ordered_map
from yanmo.curate.shingle_sets import Pairs, ShingleSets, make_pairs, similarities, take_apart
from yanmo.curate.shingles import SHINGLE, band_keys
from yanmo.curate.signing import BAND_COLUMNS

Ints = npt.NDArray[np.int64]

REVISION = 1
"""Raised when the same documents give other pairs."""

_ALL_PAIRS = 24
"""Documents in a band that are all compared with one another. Where more share it (a form letter, say), each
is compared with the next two and with the best ones: work stays linear, and the best can replace it."""
_BEST = 4
"""Best ones of such a band."""

EDGES = pa.schema(
    [pa.field("first", pa.int64(), nullable=False), pa.field("second", pa.int64(), nullable=False)],
    metadata={"yanmo.schema": "near_duplicates", "yanmo.version": "1"},
)
"""Pairs of positions, the smaller first, sorted."""


@dataclass(frozen=True, kw_only=True)
class Edges:
    """Pairs of similar documents, by position."""

    first: Ints
    second: Ints

    @classmethod
    def none(cls) -> Edges:
        return cls(first=np.zeros(0, np.int64), second=np.zeros(0, np.int64))

    @classmethod
    def read(cls, path: Path) -> Edges:
        table = pq.read_table(path, partitioning=None)
        return cls(first=table["first"].to_numpy(), second=table["second"].to_numpy())


def build_edges(
    attempt: Attempt,
    *,
    mapped: Sequence[Path],
    signed: Sequence[Path],
    candidates: Candidates,
    unique: Ints,
    similarity: float,
    workers: int,
) -> Result:
    """Write `edges.parquet`: the pairs of `unique` documents whose similarity is `similarity` or more.

    Args:
        unique: indexes into `candidates`, one per text, in the order of positions.
        similarity: Jaccard similarity of shingle sets, above 0.
    """
    scratch = attempt.path("scratch/rows.npy").parent
    try:
        proposed = _propose(scratch, signed, candidates, unique, workers)
        sets = ShingleSets.gather(scratch, mapped, candidates, unique, proposed, workers)
        shared = similarities(proposed, sets)
    finally:
        shutil.rmtree(scratch)
    found = proposed[shared >= similarity]
    columns = [pa.array(positions) for positions in take_apart(found)]
    write_parquet(pa.table(columns, schema=EDGES), attempt.path("edges.parquet"))
    attempt.add("edges.parquet")
    return Result(counts={"compared": len(proposed), "similar": len(found)})


@dataclass(frozen=True, kw_only=True)
class _Band:
    column: str
    signed: tuple[Path, ...]
    rows: Path
    rank: Path
    out: Path


def _propose(
    scratch: Path, signed: Sequence[Path], candidates: Candidates, unique: Ints, workers: int
) -> Pairs:
    """Pairs of positions that share a band, sorted, each once."""
    rows, rank = scratch / "rows.npy", scratch / "rank.npy"
    np.save(rows, np.where(candidates.han[unique] >= SHINGLE, unique, -1))
    np.save(rank, candidates.ranks()[unique])
    tasks = [
        _Band(column=name, signed=tuple(signed), rows=rows, rank=rank, out=scratch / f"{name}.npy")
        for name in BAND_COLUMNS
    ]
    found = np.zeros(0, np.uint64)
    for path in ordered_map(pairs_of_band, iter(tasks), workers if len(unique) > 200_000 else 1):
        found = np.union1d(found, np.load(path))
        path.unlink()
    return found


def pairs_of_band(task: _Band) -> Path:
    """Write the pairs that share one band's key; returns the file."""
    tables = [pq.read_table(path, columns=[task.column], partitioning=None) for path in task.signed]
    keys = pa.concat_tables(tables)[task.column].to_numpy()
    rows = np.load(task.rows)
    positions = np.flatnonzero(rows >= 0)
    np.save(task.out, pairs_of_keys(keys[rows[positions]], positions, np.load(task.rank)[positions]))
    return task.out


def pairs_of_keys(keys: npt.NDArray[np.uint32], positions: Ints, rank: Ints) -> Pairs:
    """Pairs of `positions` with equal keys, the smaller position first.

    Args:
        rank: of each position, 0 the best copy of all.
    """
    order = np.argsort(keys)
    is_equal = keys[order][1:] == keys[order][:-1]
    shared = order[np.append(is_equal, False) | np.append(False, is_equal)] if len(order) else order
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
    return np.unique(np.concatenate(pairs))


def _ordered(one: Ints, other: Ints) -> Pairs:
    return make_pairs(np.minimum(one, other), np.maximum(one, other))


def find_similar(
    texts: Sequence[str],
    mapped: Sequence[Path],
    signed: Sequence[Path],
    candidates: Candidates,
    unique: Ints,
    similarity: float,
) -> Ints:
    """Positions of the documents that are similar to one of a few comparable `texts` (an evaluation set)."""
    pairs = _pairs_with(texts, signed, candidates, unique)
    found = []
    for part in np.array_split(pairs, 1 + len(pairs) // _AT_A_TIME):
        first, second = take_apart(part)
        positions, which = np.unique(first, return_inverse=True)
        others, other = np.unique(second, return_inverse=True)
        if not len(positions):
            continue
        index = unique[positions]
        file, row = candidates.file[index].astype(np.int64), candidates.row[index].astype(np.int64)
        found_texts = take_rows(mapped, file, row, ("text",))["text"].to_pylist()
        both = comparable(found_texts, form_of_file(mapped[0])) + [texts[i] for i in others]
        numbered = make_pairs(which, other + len(positions))
        found.append(positions[which[similarities(numbered, ShingleSets.of(both)) >= similarity]])
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


_AT_A_TIME = 20_000
"""Pairs whose texts are held in memory together."""


def _pairs_with(texts: Sequence[str], signed: Sequence[Path], candidates: Candidates, unique: Ints) -> Pairs:
    """Pairs of a position and an index into `texts` that share a band, sorted."""
    keys, han, _ = band_keys(texts)
    long_enough = np.flatnonzero(han >= SHINGLE)
    positions = np.flatnonzero(candidates.han[unique] >= SHINGLE)
    found = np.zeros(0, np.uint64)
    for name, theirs in zip(BAND_COLUMNS, keys[:, long_enough], strict=True):
        tables = [pq.read_table(path, columns=[name], partitioning=None) for path in signed]
        ours = pa.concat_tables(tables)[name].to_numpy()[unique[positions]]
        order = np.argsort(theirs, kind="stable")
        low = np.searchsorted(theirs[order], ours, side="left")
        high = np.searchsorted(theirs[order], ours, side="right")
        hit = np.flatnonzero(high > low)
        times = (high - low)[hit]
        index = (
            np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times) + np.repeat(low[hit], times)
        )
        found = np.union1d(found, make_pairs(np.repeat(positions[hit], times), long_enough[order][index]))
    return found
