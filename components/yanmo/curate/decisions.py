"""Writes decisions.parquet, and adds up what is kept of each folder.

Rows come in the order of files, those of malformed lines and filters first. The other document of a copy lies
in any mapped file: it is gathered as in row_pieces.py, so that no file is read once for each other one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.common.disk_arrays import new_array, numbers_where
from yanmo.curate.corpus import REASONS, REPORTED, Corpus
from yanmo.curate.mapped_texts import read_texts
from yanmo.formats.decisions import COPIES, DECISIONS, MALFORMED
from yanmo.formats.records import ROW_GROUP, write_tables
from yanmo.formats.row_pieces import Layout, cut_file

Sums = dict[str, list[int]]
"""Folder of the sources, or file that is in none -> documents read, documents and characters kept."""
_COPIES_AT_A_TIME = 4 * ROW_GROUP
_IS_COPY, IN_TRAIN = np.isin(REASONS, COPIES), np.isin(REASONS, ("", *REPORTED))


def write_decisions(corpus: Corpus, path: Path) -> Sums:
    """Write the table of what was decided; gives what is kept."""
    sums: Sums = {}
    scratch = path.with_name("scratch-copies")
    write_tables(_row_groups(_tables(corpus, sums, scratch)), DECISIONS, path)
    shutil.rmtree(scratch)
    return sums


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    left = DECISIONS.empty_table()
    for table in tables:
        left = pa.concat_tables([left, table])
        if whole := len(left) // ROW_GROUP * ROW_GROUP:
            yield left.slice(0, whole).combine_chunks()
            left = left.slice(whole)
    yield left.combine_chunks()


def _tables(corpus: Corpus, sums: Sums, scratch: Path) -> Iterator[pa.Table]:
    for path in corpus.dropped:
        for batch in pq.ParquetFile(path).iter_batches():
            table = pa.Table.from_batches([batch])
            read = table.filter(pc.not_equal(table["reason"], MALFORMED))
            _add(sums, read["path"], np.zeros(len(read), np.bool_), np.zeros(len(read), np.int64))
            yield table
    others = _others(corpus, scratch)
    for path, (start, stop) in zip(corpus.paths, pairwise(corpus.candidates.starts.tolist()), strict=True):
        yield _of_file(corpus, path, corpus.reason[start:stop], sums, others)


def _of_file(
    corpus: Corpus,
    path: Path,
    reason: npt.NDArray[np.int8],
    sums: Sums,
    others: Callable[[int], tuple[pa.Array, pa.Array]],
) -> pa.Table:
    """Return the rows of a mapped file's documents."""
    names = ["path", "line", "id", "genre", "characters", "changes"]
    table = pq.read_table(path, columns=names, partitioning=None)
    _add(sums, table["path"], IN_TRAIN[reason], table["characters"].to_numpy())
    chosen = np.flatnonzero((reason != 0) | pc.not_equal(table["changes"], "").to_numpy())
    table, reason = table.take(pa.array(chosen)), reason[chosen]
    value, note = np.full(len(chosen), np.nan), np.full(len(chosen), "", object)
    for name, runs in corpus.shared.items():
        rows = np.flatnonzero(reason == REASONS.index(name))
        texts = read_texts(path, chosen[rows].astype(np.int32)) if len(rows) else []
        value[rows], note[rows] = runs.shares(texts)[0], [runs.longest(text) for text in texts]
    is_copy = _IS_COPY[reason]
    other_id, other_path = (np.full(len(chosen), "", object) for _ in range(2))
    other_id[is_copy], other_path[is_copy] = others(int(is_copy.sum()))
    columns = {name: table[name] for name in names} | {
        "reason": np.array(REASONS, object)[reason],
        "value": pa.array(value, from_pandas=True),
        "note": note,
        "other_id": other_id,
        "other_path": other_path,
    }
    return pa.table({name: columns[name] for name in DECISIONS.names}, schema=DECISIONS)


def _add(sums: Sums, paths: pa.ChunkedArray, kept: npt.NDArray[np.bool_], sizes: npt.NDArray[Any]) -> None:
    coded = pc.dictionary_encode(paths.combine_chunks())
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    places, number = coded.indices.to_numpy(), len(coded.dictionary)
    counted = (np.bincount(places, weights, number) for weights in (None, kept, kept * sizes))
    for path, *row in zip(coded.dictionary.to_pylist(), *counted, strict=True):
        folder, slash, name = path.rpartition("/")
        place = folder + slash or name
        sums[place] = [int(a + b) for a, b in zip(sums.get(place, (0, 0, 0)), row, strict=True)]


def _others(corpus: Corpus, scratch: Path) -> Callable[[int], tuple[Any, Any]]:
    """Gives ids and places of what is kept for the next so many copies, in the order of the candidates."""
    best, position = corpus.copies.unique, corpus.copies.position
    copies = numbers_where(lambda some: _IS_COPY[corpus.reason[some]], len(corpus.reason))
    kept = new_array(len(copies), np.int32)
    ends = [*range(0, len(copies), _COPIES_AT_A_TIME), len(copies)]
    for start, stop in pairwise(ends):
        kept[start:stop] = best[corpus.kept_for[position[copies[start:stop]]]]
    scratch.mkdir(exist_ok=True)
    starts = corpus.candidates.starts
    layout = Layout(
        paths=corpus.paths,
        starts=starts,
        index=kept,
        bounds=list(pairwise(ends)),
        scratch=scratch,
        columns=("id", "path", "line"),
    )
    for cut in layout.cuts():
        cut_file(cut)

    def rows() -> Iterator[tuple[str, str]]:
        for part in range(len(layout.bounds)):
            for table in layout.pieces(part).tables():
                places = zip(table["path"].to_pylist(), table["line"].to_pylist(), strict=True)
                yield from zip(table["id"].to_pylist(), (f"{p}:{line}" for p, line in places), strict=True)

    found = rows()

    def some(number: int) -> tuple[Any, Any]:
        pairs = [next(found) for _ in range(number)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    return some
