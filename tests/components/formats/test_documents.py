"""Batches of documents: every row once, in order, and little text at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.formats.documents import document_batches
from yanmo.formats.records import documents_schema


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 300), max_size=60), rows=st.integers(1, 40), most=st.integers(1, 2000))
def test_batches_hold_every_row_once_and_about_so_much_text(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], rows: int, most: int
) -> None:
    texts = [f"{number}" + "墨" * size for number, size in enumerate(sizes)]
    path: Path = tmp_path_factory.mktemp("documents") / "train.parquet"
    schema = documents_schema("classical-1", False)
    table = pa.table({"text": pa.array(texts, pa.string())}).replace_schema_metadata(schema.metadata)
    pq.write_table(table, path)
    batches = list(document_batches(path, ("id", "text"), rows, most))
    assert [text for batch in batches for text in batch["text"].to_pylist()] == texts
    for batch in batches:
        bytes_of = [len(text.encode()) for text in batch["text"].to_pylist()]
        assert 0 < len(batch) <= rows
        assert sum(bytes_of) - max(bytes_of) <= most
