"""Rows of many Parquet files in another order, in as many parts as wished, by two passes.

First every file is cut into one piece per part, then each part is gathered from its pieces. So every byte is
read twice, however many files and parts there are. What is in memory is a row group of a file, or a row group
of a part and its pieces, which are mapped. The obvious way, to take the rows of each part from all files,
reads all text once for every part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.engine.sql import Tables

Ints = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One file to cut."""

    path: Path
    columns: tuple[str, ...]
    """Names of the columns to keep, as far as the file has them; () for all."""
    rows: npt.NDArray[np.int32]
    """Its rows, one part after another, rising within a part."""
    bounds: tuple[int, ...]
    """Where the rows of each part begin, and where the last one ends."""
    out: Path


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which row goes where."""

    paths: Sequence[Path]
    tables: Tables
    """With a table `placed`, of a row for each of the result: `file`, an index into `paths`; `row`; `part`;
    `place`, which orders the rows of a part. A row of a file may be there several times."""
    scratch: Path
    """A folder for the pieces."""
    columns: tuple[str, ...] = ()

    @cached_property
    def sizes(self) -> list[int]:
        """The number of rows of each part."""
        query = "select count(*) from placed group by part order by part"
        return [count for (count,) in self.tables.rows(query)]

    def cuts(self) -> Iterator[Cut]:
        """Yield the work of the first pass: a `cut_file` for each."""
        parts = np.arange(len(self.sizes) + 1)
        for number, rows in self.tables.by_file(
            "select file, row, part from placed order by file, part, row"
        ):
            yield Cut(
                path=self.paths[number],
                columns=self.columns,
                rows=rows["row"].to_numpy(),
                bounds=tuple(np.searchsorted(rows["part"].to_numpy(), parts).tolist()),
                out=self._out(number),
            )

    def pieces(self, part: int) -> Pieces:
        """Return a part, once all files are cut."""
        files = self.tables.rows(
            "select distinct file from placed where part = $part order by file", part=part
        )
        places = self.tables.table(
            """select row_number() over (order by file, row, place) - 1 as at from placed
            where part = $part order by place""",
            part=part,
        )
        paths = tuple(self._out(number) for (number,) in files)
        return Pieces(paths=paths, part=part, parts=len(self.sizes), place=places["at"].to_numpy())

    def _out(self, number: int) -> Path:
        return self.scratch / f"{number:06d}.arrow"


def cut_file(task: Cut) -> None:
    """Write the pieces of one file: for each of its row groups one record batch per part."""
    with pq.ParquetFile(task.path) as file:
        schema = file.schema_arrow.remove_metadata()
        names = [name for name in task.columns or schema.names if name in schema.names]
        schema = pa.schema([schema.field(name) for name in names])
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        with pa.OSFile(str(task.out), "wb") as out, pa.ipc.new_file(out, schema) as writer:
            first = 0
            for number, size in enumerate(sizes):
                table = file.read_row_group(number, columns=names, use_threads=False).combine_chunks()
                table = table.select(names).replace_schema_metadata(None)
                for start, stop in pairwise(task.bounds):
                    rows = task.rows[start:stop]
                    low, high = np.searchsorted(rows, (first, first + size))
                    writer.write_batch(_as_batch(table.take(pa.array(rows[low:high] - first)), schema))
                first += size


def _as_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """The rows of one part."""

    paths: tuple[Path, ...]
    part: int
    parts: int
    place: Ints
    """For each of its rows, where it is among its pieces one after another."""

    def tables(self, at_a_time: int) -> Iterator[pa.Table]:
        """Yield the rows in order, so many together, each column one chunk; no table without rows."""
        batches = self._batches()
        for start in range(0, len(self.place), at_a_time):
            yield _gathered(batches, self.place[start : start + at_a_time])

    def has(self, column: str) -> bool:
        """Return whether a row has a value in this column."""
        return any(
            column in batch.schema.names and batch[column].null_count < len(batch)
            for batch in self._batches()
        )

    def _batches(self) -> list[pa.RecordBatch]:
        found = []
        for path in self.paths:
            with pa.memory_map(str(path)) as file:
                reader = pa.ipc.open_file(file)
                numbers = range(self.part, reader.num_record_batches, self.parts)
                found += [batch for number in numbers if len(batch := reader.get_batch(number))]
        return found


def _gathered(batches: list[pa.RecordBatch], place: Ints) -> pa.Table:
    """Return rows of batches, of which each is one copy: what was copied on the way is let go.

    Args:
        place: of each row, where it is among the batches one after another.
    """
    ends = np.cumsum([len(batch) for batch in batches])
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], [0, *ends.tolist()])
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    taken = [
        pa.Table.from_batches([batch.take(pa.array(place[order[low:high]] - (end - len(batch))))])
        for batch, end, (low, high) in zip(batches, ends.tolist(), pairwise(bounds), strict=True)
        if low < high
    ]
    table = pa.concat_tables(taken, promote_options="default").combine_chunks()
    taken.clear()
    return table.take(pa.array(inverse)).combine_chunks()
