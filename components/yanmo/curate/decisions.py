"""Writes decisions.parquet, and adds up what is kept of each folder.

Rows come in the order of files, those of malformed lines and filters first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.curate.corpus import REASONS, Corpus
from yanmo.curate.mapped_texts import read_texts
from yanmo.engine.sql import literally, parquet
from yanmo.formats.decisions import DECISIONS, MALFORMED
from yanmo.formats.records import row_groups, write_tables

Sums = dict[str, list[int]]
"""Folder of the sources, or file that is in none -> documents read, documents and characters kept."""


def write_decisions(corpus: Corpus, path: Path) -> Sums:
    """Write the table of what was decided; gives what is kept."""
    sums: Sums = {}
    write_tables(row_groups(_tables(corpus, sums), DECISIONS), DECISIONS, path)
    return sums


_DECIDED = f"""
select lost.file, lost.row, lost.reason, other.id as other_id, other.path || ':' || other.line as other_path
from (
    select documents.file, documents.row,
        if(documents.rank = texts.rank, texts.reason, $duplicate)::tinyint as reason,
        if(documents.rank <> texts.rank or texts.reason = $near_duplicate, texts.kept_for, null) as kept_for
    from documents join texts using (cluster)
    where documents.rank <> texts.rank or texts.reason <> 0
) as lost
left join texts as kept on lost.kept_for = kept.position
left join {parquet("$mapped")} as other
    on kept.file = other.file_index and kept.row = other.file_row_number
order by lost.file, lost.row
"""
"""Each document that is not just kept, why, and of a copy the document that is kept for it."""


def _tables(corpus: Corpus, sums: Sums) -> Iterator[pa.Table]:
    for path in corpus.dropped:
        for batch in pq.ParquetFile(path).iter_batches():
            table = pa.Table.from_batches([batch])
            read = table.filter(pc.not_equal(table["reason"], MALFORMED))
            _add(sums, read["path"], np.zeros(len(read), np.bool_), np.zeros(len(read), np.int64))
            yield table
    decided = corpus.tables.by_file(
        _DECIDED,
        mapped=literally(corpus.paths),
        duplicate=REASONS.index("duplicate"),
        near_duplicate=REASONS.index("near_duplicate"),
    )
    waiting = next(decided, None)
    for number, path in enumerate(corpus.paths):
        own = None
        if waiting and waiting[0] == number:
            own, waiting = waiting[1], next(decided, None)
        yield _of_file(corpus, path, own, sums)


def _of_file(corpus: Corpus, path: Path, decided: pa.Table | None, sums: Sums) -> pa.Table:
    """Return the rows of a mapped file's documents.

    Args:
        decided: those of `_DECIDED` that are in this file.
    """
    names = ["path", "line", "id", "genre", "characters", "changes"]
    table = pq.read_table(path, columns=names, partitioning=None)
    reason, others = np.zeros(len(table), np.int8), np.full((2, len(table)), "", object)
    if decided is not None:
        rows = decided["row"].to_numpy()
        reason[rows] = decided["reason"].to_numpy()
        for found, name in zip(others, ("other_id", "other_path"), strict=True):
            found[rows] = pc.fill_null(decided[name], "").to_numpy()
    _add(sums, table["path"], reason == 0, table["characters"].to_numpy())
    chosen = np.flatnonzero((reason != 0) | pc.not_equal(table["changes"], "").to_numpy())
    table, reason, others = table.take(pa.array(chosen)), reason[chosen], others[:, chosen]
    value, note = np.full(len(chosen), np.nan), np.full(len(chosen), "", object)
    for name, runs in corpus.shared.items():
        rows = np.flatnonzero(reason == REASONS.index(name))
        texts = read_texts(path, chosen[rows].astype(np.int32)) if len(rows) else []
        value[rows], note[rows] = runs.shares(texts)[0], [runs.longest(text) for text in texts]
    columns = {name: table[name] for name in names} | {
        "reason": np.array(REASONS, object)[reason],
        "value": pa.array(value, from_pandas=True),
        "note": note,
        "other_id": others[0],
        "other_path": others[1],
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
