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
from yanmo.engine.sql import literally, parquet
from yanmo.formats.decisions import DECISIONS, MALFORMED
from yanmo.formats.records import row_groups, write_tables

Sums = dict[str, list[int]]
"""Folder of the sources, or file that is in none -> documents read, documents and characters kept."""


_NAMES = ["path", "line", "id", "genre", "characters", "changes"]
"""Columns of a signed file that the table has too."""
_WORDS = ("note", "other_id", "other_path")
"""Columns that are empty where nothing was decided."""


def write_decisions(corpus: Corpus, path: Path) -> Sums:
    """Write the table of what was decided; gives what is kept."""
    sums: Sums = {}
    write_tables(row_groups(_tables(corpus, sums), DECISIONS), DECISIONS, path)
    return sums


_DECIDED = f"""
select lost.file, lost.row, lost.reason, passages.value, passages.note,
    other.id as other_id, other.path || ':' || other.line as other_path
from (
    select documents.file, documents.row, if(documents.rank = texts.rank, texts.position, null) as position,
        if(documents.rank = texts.rank, texts.reason, $duplicate)::tinyint as reason,
        if(documents.rank <> texts.rank or texts.reason = $near_duplicate, texts.kept_for, null) as kept_for
    from documents join texts using (cluster)
    where documents.rank <> texts.rank or texts.reason <> 0
) as lost
left join passages using (position)
left join texts as kept on lost.kept_for = kept.position
left join {parquet("$signed")} as other
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
        signed=literally(corpus.signed),
        duplicate=REASONS.index("duplicate"),
        near_duplicate=REASONS.index("near_duplicate"),
    )
    waiting = next(decided, None)
    for number, path in enumerate(corpus.signed):
        table = pq.read_table(path, columns=_NAMES, partitioning=None)
        own = None
        if waiting and waiting[0] == number:
            own, waiting = waiting[1], next(decided, None)
        yield _of_file(table, own, sums)


def _of_file(table: pa.Table, decided: pa.Table | None, sums: Sums) -> pa.Table:
    """Return the rows of a mapped file's documents.

    Args:
        table: all documents of the file.
        decided: those of `_DECIDED` that are in this file.
    """
    columns: dict[str, Any] = {name: np.full(len(table), "", object) for name in _WORDS}
    columns |= {"reason": np.zeros(len(table), np.int8), "value": np.full(len(table), np.nan)}
    if decided is not None:
        rows = decided["row"].to_numpy()
        for name, values in columns.items():
            found = decided[name]
            values[rows] = (pc.fill_null(found, "") if name in _WORDS else found).to_numpy()
    reason = columns["reason"]
    _add(sums, table["path"], reason == 0, table["characters"].to_numpy())
    chosen = np.flatnonzero((reason != 0) | pc.not_equal(table["changes"], "").to_numpy())
    columns = {name: values[chosen] for name, values in columns.items()}
    columns |= {name: table[name].take(pa.array(chosen)) for name in _NAMES}
    columns["reason"] = np.array(REASONS, object)[columns["reason"]]
    columns["value"] = pa.array(columns["value"], from_pandas=True)
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
