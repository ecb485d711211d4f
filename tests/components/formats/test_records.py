"""documents v1: one schema, checked by one function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.common.errors import DataError
from yanmo.formats.records import DOCUMENTS, check_schema, document_id, write_parquet


@pytest.fixture
def documents() -> pa.Table:
    row: dict[str, Any] = {
        f.name: "x" if f.type == pa.string() else [] if pa.types.is_map(f.type) else None for f in DOCUMENTS
    }
    return pa.Table.from_pylist([row], schema=DOCUMENTS)


def test_equal_tables_give_equal_bytes_and_pass_the_check(documents: pa.Table, tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        write_parquet(documents, tmp_path / name)
        check_schema(tmp_path / name, "documents")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert pq.read_table(tmp_path / "a.parquet").schema.equals(DOCUMENTS)


@pytest.mark.parametrize(("name", "version"), [("documents", "3"), ("tokens", "1")])
def test_another_schema_or_version_is_refused(
    documents: pa.Table, tmp_path: Path, name: str, version: str
) -> None:
    other = documents.replace_schema_metadata({"yanmo.schema": name, "yanmo.version": version})
    write_parquet(other, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=f"expected schema documents version 1 or 2, found {name} {version}"):
        check_schema(tmp_path / "a.parquet", "documents")


@pytest.mark.parametrize("keep", [0, 10, -8])
def test_a_truncated_file_is_refused_by_name(documents: pa.Table, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(documents, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"a\.parquet: not a readable Parquet file"):
        check_schema(path, "documents")


def test_a_document_is_known_by_source_title_and_text() -> None:
    assert document_id("s", "题", "文") == document_id("s", "题", "文")
    assert (
        len({document_id("s", "题", "文"), document_id("s题", "", "文"), document_id("s", "题文", "")}) == 3
    )
