"""Near duplicates: pairs of documents whose shingles are the same to a given share.

MinHash bands (shingles.py) propose pairs, the exact Jaccard similarity of their shingle sets decides: so
every pair found is a true one, and what bands miss is known (a thousandth at J = 0.55). The obvious way, to
join all documents that share a band as most pipelines do, joins texts that have a fifth in common.

Documents are named by position (`texts` of plan.py), so that nothing depends on files. The shingle sets of
the documents in proposed pairs lie in a scratch file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.curate.duplicates.shingle_sets import Sets, SetsFile, SetsTask, similarities, write_sets
from yanmo.curate.duplicates.shingles import SHINGLE, band_keys
from yanmo.curate.duplicates.signing import BAND_COLUMNS
from yanmo.curate.mapped_texts import comparable, mapped_rows
from yanmo.engine.maps import brought_here, ordered_map, remove_folder
from yanmo.engine.sql import Tables, literally, parquet
from yanmo.formats.records import row_groups, write_tables
from yanmo.store.commit import Attempt, Result

Ints = npt.NDArray[np.signedinteger[Any]]

REVISION = 1
"""Raised when the same documents give other pairs."""

EDGES = pa.schema(
    [pa.field("first", pa.int64(), nullable=False), pa.field("second", pa.int64(), nullable=False)],
    metadata={"yanmo.schema": "near_duplicates", "yanmo.version": "1"},
)
"""Pairs of positions, the smaller first, sorted."""

_ALL_PAIRS = 24
"""Documents in a band that are all compared with one another. Where more share it (a form letter, say), each
is compared with the next two and with the best ones: work stays linear, and the best can replace it."""
_BEST = 4
"""Best ones of such a band."""
_TOGETHER = 1 << 18
"""Pairs that are compared together."""
_KEYS_TOGETHER = 1 << 20
"""Keys of bands that one query groups, unless one band has more: planning a query takes 4 ms."""

_ROWS_TOGETHER = 150_000
"""Rows of signed files that one query reads, so that it takes no more memory for more files."""

_BANDS = f"""
insert into bands select position, rank, {", ".join(BAND_COLUMNS)}
from (select * from texts where is_long and file >= $first and file < $last)
join {parquet("$signed")} as signed on file = $first + signed.file_index and row = signed.file_row_number
"""

_PROPOSE = f"""
insert into proposed
with keys as (
    select position, rank, {{keys}} from bands
), shared as (
    from keys where key in (select key from keys group by key having count(*) > 1)
), placed as (
    select key, position, row_number() over (partition by key order by rank) as place,
        count(*) over (partition by key) as size
    from shared
)
select least(a.position, b.position), greatest(a.position, b.position)
from placed as a join placed as b on a.key = b.key and a.place < b.place
where a.size <= {_ALL_PAIRS} or b.place - a.place <= 2 or a.place <= {_BEST}
"""


def _keys_of(bands: Sequence[str]) -> str:
    """Return the column `key` of a query with a row for each of these bands: the band and its key."""
    numbered = (f"{int(name[-2:])}::ubigint << 32 | {name}" for name in bands)
    return f"unnest([{', '.join(numbered)}]) as key"


def _read_bands(tables: Tables, signed: Sequence[Path]) -> None:
    """Make the table `bands` of the texts that are compared, if it is not there."""
    if tables.rows("select 1 from duckdb_tables() where table_name = 'bands'"):
        return
    columns = ", ".join(f"{name} uinteger" for name in BAND_COLUMNS)
    tables.run(f"create table bands (position integer, rank integer, {columns})")
    rows = tables.rows("select file, count(*) from documents group by file order by file")
    for first, last in _files_together(rows):
        tables.run(_BANDS, first=first, last=last, signed=literally(signed[first:last]))


def _files_together(rows: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the first file and the one behind the last of those that have some `_ROWS_TOGETHER` rows."""
    first, gathered = 0, 0
    for file, count in rows:
        if gathered and gathered + count > _ROWS_TOGETHER:
            yield first, file
            first, gathered = file, 0
        gathered += count
    yield first, rows[-1][0] + 1


def propose(tables: Tables, signed: Sequence[Path]) -> None:
    """Make the table `pairs` of the positions that share the key of a band, each pair once."""
    _read_bands(tables, signed)
    propose_of_bands(tables)


def propose_of_bands(tables: Tables) -> None:
    """The same, where the table `bands` is there."""
    tables.run("create or replace table proposed (first integer, second integer)")
    rows = tables.value("select count(*) from bands")
    at_once = max(1, _KEYS_TOGETHER // max(rows, 1))
    for first in range(0, len(BAND_COLUMNS), at_once):
        tables.run(_PROPOSE.format(keys=_keys_of(BAND_COLUMNS[first : first + at_once])))
    tables.run("create or replace table pairs as select distinct first, second from proposed")
    tables.run("drop table proposed")


def build_edges(
    attempt: Attempt,
    *,
    mapped: Sequence[Path],
    signed: Sequence[Path],
    tables: Tables,
    similarity: float,
    workers: int,
) -> Result:
    """Write `edges.parquet`: the pairs of texts whose similarity is `similarity` or more.

    Args:
        tables: with `texts` (plan.py).
        similarity: Jaccard similarity of shingle sets, above 0.
    """
    scratch = attempt.path("scratch/hashes").parent
    try:
        propose(tables, signed)
        found = _Similar(tables, gather(tables, mapped, scratch, workers), similarity)
        write_tables(row_groups(found.tables_of_pairs(), EDGES), EDGES, attempt.path("edges.parquet"))
    finally:
        remove_folder(scratch)
    tables.run("drop table pairs; drop table sets")
    attempt.add("edges.parquet")
    return Result(counts={"compared": found.compared, "similar": found.similar})


def gather(tables: Tables, mapped: Sequence[Path], scratch: Path, workers: int) -> SetsFile:
    """Write the shingle sets of all documents in `pairs`, each mapped file being read once.

    Makes the table `sets`: where each position's set begins in the file, and its size.
    """
    groups, result = deque[Any](), SetsFile(scratch / "hashes")
    tables.run("create or replace table sets (position integer, start bigint, size bigint)")
    needed = """
    select file, row, position from texts
    where position in (select first from pairs union all select second from pairs) order by file, row
    """

    def tasks() -> Iterator[SetsTask]:
        for number, rows in tables.by_file(needed):
            groups.append(rows["position"])
            out = scratch / f"set-{number}"
            yield SetsTask(mapped=mapped[number], rows=rows["row"].to_numpy(), out=out)

    with ordered_map(write_sets, tasks(), workers) as results:
        for sizes, out in results:
            start = result.append(brought_here(out), sizes)
            tables.append("sets", position=groups.popleft(), start=start, size=sizes)
    return result


_COMPARED = """
select first, second, a.start as first_start, a.size as first_size, b.start as second_start,
    b.size as second_size
from pairs join sets as a on first = a.position join sets as b on second = b.position
order by first, second
"""


@dataclass
class _Similar:
    """The similar ones among the pairs, and how many there are."""

    tables: Tables
    sets: SetsFile
    similarity: float
    compared: int = 0
    similar: int = 0

    def tables_of_pairs(self) -> Iterator[pa.Table]:
        """Yield the similar pairs, sorted."""
        for batch in self.tables.batches(_COMPARED, _TOGETHER):
            self.compared += len(batch)
            one, other = (
                Sets(self.sets.hashes, batch[f"{which}_start"].to_numpy(), batch[f"{which}_size"].to_numpy())
                for which in ("first", "second")
            )
            is_similar = similarities(one, other, self.sets.pages) >= self.similarity
            some = pa.Table.from_batches([batch.select(EDGES.names)]).filter(pa.array(is_similar)).cast(EDGES)
            self.similar += len(some)
            yield some


def find_similar(
    tables: Tables,
    texts: Sequence[str],
    mapped: Sequence[Path],
    signed: Sequence[Path],
    form: str,
    similarity: float,
    workers: int,
) -> Ints:
    """Positions of the documents that are similar to one of a few comparable `texts` (an evaluation set).

    Args:
        form: text form of the mapped files.
    """
    _read_bands(tables, signed)
    of_texts, sizes = band_keys(texts)
    which = np.flatnonzero(sizes >= SHINGLE)
    few = {band: of_band[which] for band, of_band in zip(BAND_COLUMNS, of_texts, strict=True)}
    tables.add("few", which=which, **few)
    keys = _keys_of(BAND_COLUMNS)
    meetings = f"""
    select file, row, position, which from (
        select distinct position, which from (select position, {keys} from bands)
        join (select which, {keys} from few) using (key)
    ) join texts using (position) order by file, row, which
    """
    found = [np.zeros(0, np.int64)]
    for batch in tables.batches(meetings, _AT_A_TIME):
        rows, own = np.unique(batch["position"].to_numpy(), return_index=True, return_inverse=True)[1:]
        others, other = np.unique(batch["which"].to_numpy(), return_inverse=True)
        file, row = (batch[name].to_numpy()[rows] for name in ("file", "row"))
        column = mapped_rows(mapped, file, row, ("text",), workers)["text"]
        sets = Sets.of(comparable(column.to_pylist(), form))
        theirs = Sets.of([texts[i] for i in others])
        is_similar = similarities(sets.take(own), theirs.take(other)) >= similarity
        found.append(batch["position"].to_numpy()[is_similar])
    return np.unique(np.concatenate(found))


_AT_A_TIME = 20_000
"""Pairs whose texts are held in memory together."""
