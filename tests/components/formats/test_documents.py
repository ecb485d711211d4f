"""Batches of documents, every row once and little text at a time; and a sample of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.formats.documents import count_characters, document_batches, training_sample
from yanmo.formats.records import DOCUMENTS, document_id, documents_schema, write_parquet
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore


def test_characters_are_counted_without_what_python_calls_white_space() -> None:
    texts = [f"明{chr(code)}月" for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    counted = count_characters(pa.chunked_array([texts[:9000], texts[9000:]]))
    assert counted.tolist() == [sum(not c.isspace() for c in text) for text in texts]


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


@pytest.mark.parametrize("files", [1, 16, 40])
@pytest.mark.parametrize("length", [10, 12_600, 250_000])
def test_every_file_gives_some_of_its_text_however_long_that_is(
    store: FileStore, files: int, length: int
) -> None:
    def build(attempt: Attempt) -> Result:
        for number in range(files):
            row = {field.name: None for field in DOCUMENTS}
            row |= {"text": "文" * length, "genre": "文", "labels": {}, "title": str(number), "author": ""}
            row |= {"source": "s", "license": "MIT", "split": "train"}
            row["id"] = document_id("s", str(number), str(row["text"]))
            name = f"train-{number:05d}-of-{files:05d}.parquet"
            write_parquet(pa.Table.from_pylist([row], schema=DOCUMENTS), attempt.path(name))
            attempt.add(name)
        return Result(counts={})

    made = commit_once(store, Recipe(stage="curate", revision=1, semantic={}, inputs={}), build)
    assert made is not None
    texts = [text for _, text in training_sample(made)]
    assert len(texts) == len(made.entries("train-*.parquet")[:: -(-files // 16)])
    assert sum(map(len, texts)) == min(200_000, length * len(texts), 200_000 // len(texts) * len(texts))
