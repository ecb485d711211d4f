from __future__ import annotations

import errno
import hashlib
import resource
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.engine.row_pieces import Layout, cut_file
from yanmo.engine.sql import Tables
from yanmo.formats.documents import write_document_file
from yanmo.formats.records import DOCUMENTS, ROW_GROUP, documents_schema, write_parquet, write_tables

TURNS = [{"role": "user", "begin": 0, "end": 1}]


def documents(number: int, file: int, chats: bool) -> pa.Table:
    """Documents with texts of their own; where a file has chats, every third is one."""
    rows = [
        {
            name: f"{name}{file}-{i}"
            for name in ("id", "text", "genre", "title", "author", "source", "license")
        }
        | {"split": "train", "labels": [("a", str(i))], "loss_spans": [[0, i]] if i % 2 else None}
        | ({"turns": TURNS if i % 3 == 0 else None} if chats else {})
        for i in range(number)
    ]
    return pa.Table.from_pylist(rows, schema=documents_schema("classical-1", chats))


def layout(folder: Path, paths: list[Path], where: list[tuple[int, int]], parts: list[int]) -> Layout:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    ends = sorted({min(at, len(where)) for at in parts} - {0, len(where)})
    place = np.arange(len(where))
    tables = Tables()
    file, row = np.array(where, np.int32).T
    tables.add("placed", file=file, row=row, part=np.searchsorted(ends, place, side="right"), place=place)
    return Layout(paths=paths, tables=tables, scratch=scratch)


@pytest.mark.long
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_parts_are_the_rows_that_taking_them_one_by_one_gives(tmp_path: Path, data: st.DataObject) -> None:
    files = data.draw(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=4))
    paths = []
    for number, (rows, chats) in enumerate(files):
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(
            documents(rows, number, chats), paths[-1], row_group_size=data.draw(st.integers(1, 50))
        )
    every = [pq.read_table(path).to_pylist() for path in paths]
    places = [(number, row) for number, (rows, _) in enumerate(files) for row in range(rows)]
    where = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=80))
    cut = layout(tmp_path, paths, where, data.draw(st.lists(st.integers(0, 80), max_size=4)))
    for task in cut.cuts():
        cut_file(task)
    at_a_time = data.draw(st.integers(1, 90))
    ends = [0, *np.cumsum(cut.sizes).tolist()]
    assert ends[-1] == len(where)
    for part, (start, stop) in enumerate(pairwise(ends)):
        pieces = cut.pieces(part)
        found = list(pieces.tables(at_a_time))
        assert [len(table) for table in found[:-1]] == [at_a_time] * max(0, len(found) - 1)
        assert all(column.num_chunks == 1 for table in found for column in table.columns)
        rows = [row for table in found for row in table.to_pylist()]
        expected = [every[number][row] for number, row in where[start:stop]]
        assert [{**row, "turns": row.get("turns")} for row in rows] == [
            {**row, "turns": row.get("turns")} for row in expected
        ]
        assert pieces.has("turns") == any(row.get("turns") for row in expected)


@pytest.mark.parametrize("chats", [False, True])
@pytest.mark.parametrize("rows", [0, 1, ROW_GROUP, ROW_GROUP + 5, 2 * ROW_GROUP])
def test_a_file_written_in_parts_has_the_bytes_of_one_that_was_written_whole(
    tmp_path: Path, rows: int, chats: bool
) -> None:
    few = documents(min(rows, 64), 0, chats)
    whole = few if rows <= 64 else few.take(pa.array(np.arange(rows) * 7 % 64)).combine_chunks()
    write_parquet(whole, tmp_path / "whole")
    parts = [whole.slice(i, ROW_GROUP) for i in range(0, rows, ROW_GROUP)]
    write_tables(parts, whole.schema, tmp_path / "parts")

    def columns() -> Iterator[tuple[int, dict[str, Any]]]:
        for part in parts:
            yield len(part), {name: part[name] for name in part.column_names}

    write_document_file(tmp_path / "file", "classical-1", chats, columns())
    digests = {hashlib.sha256((tmp_path / n).read_bytes()).hexdigest() for n in ("whole", "parts", "file")}
    assert len(digests) == 1
    assert pq.read_metadata(tmp_path / "file").num_rows == rows
    assert set(DOCUMENTS.names) <= set(pq.read_schema(tmp_path / "file").names)


def test_a_full_disk_ends_the_first_pass_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "0.parquet"
    write_parquet(documents(4000, 0, False), path)
    cut = layout(tmp_path, [path], [(0, row) for row in range(4000)], [])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError) as raised:
            cut_file(next(cut.cuts()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.errno == errno.EFBIG
