"""Near duplicates: pairs of documents whose shingles are the same to a given share.

MinHash bands (shingles.py) propose pairs, the exact Jaccard similarity of their shingle sets decides: so
every pair found is a true one, and what bands miss is known (a thousandth at J = 0.55). The obvious way, to
join all documents that share a band as most pipelines do, joins texts that have a fifth in common.

Documents are named by position, their rank in the order of the digests of what is compared, so that
nothing depends on files. Proposed pairs lie in scratch files as sorted runs, and so do the shingle sets of
the documents in them; what is in memory is a block of either. A worker holds a bucket of documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.disk_arrays import new_array, release_pages
from yanmo.common.hash_set import HashSet, distinct
from yanmo.curate.duplicates.proposals import FEW, compared_positions, propose
from yanmo.curate.duplicates.shingle_sets import Pairs, ShingleSets, make_pairs, similarities, take_apart
from yanmo.curate.duplicates.shingles import SHINGLE, band_keys
from yanmo.curate.duplicates.signing import BAND_COLUMNS
from yanmo.curate.duplicates.sorted_runs import merged
from yanmo.curate.mapped_texts import comparable, form_of_file
from yanmo.curate.plan import Candidates
from yanmo.engine.maps import ordered_map, remove_folder
from yanmo.formats.documents import take_rows
from yanmo.formats.records import ROW_GROUP, write_tables
from yanmo.store.commit import Attempt, Result

Ints = npt.NDArray[np.signedinteger[Any]]

REVISION = 1
"""Raised when the same documents give other pairs."""

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
        with pq.ParquetFile(path) as file:
            count, start = file.metadata.num_rows, 0
            first, second = new_array(count, np.int32), new_array(count, np.int32)
            for batch in file.iter_batches(ROW_GROUP):
                some = slice(start, start + len(batch))
                first[some], second[some] = batch["first"].to_numpy(), batch["second"].to_numpy()
                start += len(batch)
        release_pages()
        return cls(first=first, second=second)


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
    scratch = attempt.path("scratch/rank").parent
    try:
        runs = propose(scratch, signed, candidates, unique, workers)
        sets = ShingleSets.gather(scratch, mapped, candidates, unique, runs, workers)
        found = _Similar(runs, sets, similarity)
        write_tables(found.tables(), EDGES, attempt.path("edges.parquet"))
    finally:
        remove_folder(scratch)
    attempt.add("edges.parquet")
    return Result(counts={"compared": found.compared, "similar": found.similar})


@dataclass
class _Similar:
    """The similar ones among the pairs of some runs, and how many there are."""

    runs: Sequence[Path]
    sets: ShingleSets
    similarity: float
    compared: int = 0
    similar: int = 0

    def tables(self) -> Iterator[pa.Table]:
        """Yield the similar pairs, sorted, a row group at a time."""
        left = np.zeros(0, np.uint64)
        for pairs in merged(self.runs):
            self.compared += len(pairs)
            left = np.concatenate((left, pairs[similarities(pairs, self.sets) >= self.similarity]))
            whole = len(left) - len(left) % ROW_GROUP
            if whole:
                yield self._table(left[:whole])
                left = left[whole:]
        yield self._table(left)

    def _table(self, pairs: Pairs) -> pa.Table:
        self.similar += len(pairs)
        return pa.table([pa.array(positions) for positions in take_apart(pairs)], schema=EDGES)


def find_similar(
    texts: Sequence[str],
    mapped: Sequence[Path],
    signed: Sequence[Path],
    candidates: Candidates,
    unique: Ints,
    similarity: float,
    workers: int,
) -> Ints:
    """Positions of the documents that are similar to one of a few comparable `texts` (an evaluation set)."""
    pairs = _pairs_with(texts, signed, candidates, unique, workers)
    found = []
    for part in np.array_split(pairs, 1 + len(pairs) // _AT_A_TIME):
        first, second = take_apart(part)
        positions, which = np.unique(first, return_inverse=True)
        others, other = np.unique(second, return_inverse=True)
        if not len(positions):
            continue
        index = unique[positions]
        file, row = candidates.places(index)
        found_texts = take_rows(mapped, file, row, ("text",))["text"].to_pylist()
        both = comparable(found_texts, form_of_file(mapped[0])) + [texts[i] for i in others]
        numbered = make_pairs(which, other + len(positions))
        found.append(positions[which[similarities(numbered, ShingleSets.of(both)) >= similarity]])
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


_AT_A_TIME = 20_000
"""Pairs whose texts are held in memory together."""


@dataclass(frozen=True, kw_only=True)
class _Meeting:
    signed: Path
    position: Ints
    """Position of each row; -1 where it is not compared."""
    keys: npt.NDArray[np.uint32]
    """Band keys of a few texts, shape (BANDS, texts)."""


def _pairs_with(
    texts: Sequence[str], signed: Sequence[Path], candidates: Candidates, unique: Ints, workers: int
) -> Pairs:
    """Pairs of a position and an index into `texts` that share a band, each once."""
    keys, sizes = band_keys(texts)
    long_enough = np.flatnonzero(sizes >= SHINGLE)
    position = compared_positions(candidates, unique)
    tasks = (
        _Meeting(signed=path, position=position[start:stop], keys=keys[:, long_enough])
        for path, (start, stop) in zip(signed, pairwise(candidates.starts.tolist()), strict=True)
    )
    with ordered_map(pairs_of_meeting, tasks, workers if len(unique) > FEW else 1) as results:
        first, second = take_apart(np.concatenate([np.zeros(0, np.uint64), *results]))
    return make_pairs(first, long_enough[second])


def pairs_of_meeting(task: _Meeting) -> Pairs:
    """Pairs of a position and an index into the few texts, sorted, each once."""
    table, found = pq.read_table(task.signed, columns=list(BAND_COLUMNS), partitioning=None), []
    for band, column in zip(task.keys, table.columns, strict=True):
        first, second = _Keys(band).equal(column.to_numpy())
        is_there = task.position[first] >= 0
        found.append(make_pairs(task.position[first[is_there]], second[is_there]))
    return distinct(np.concatenate(found))


class _Keys:
    """The keys of a few texts in one band, to be met by those of many."""

    def __init__(self, keys: npt.NDArray[np.uint32]) -> None:
        self._order = np.argsort(keys, kind="stable")
        self._sorted, self._set = keys[self._order], HashSet(keys)

    def equal(self, others: npt.NDArray[np.uint32]) -> tuple[Ints, Ints]:
        """Indexes of all equal keys, in `others` and in our own."""
        hit = self._set.find(others)
        low = np.searchsorted(self._sorted, others[hit], side="left")
        times = np.searchsorted(self._sorted, others[hit], side="right") - low
        within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        return np.repeat(hit, times), self._order[np.repeat(low, times) + within]
