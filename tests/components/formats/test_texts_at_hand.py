"""What a tokenizer is tried on of a channel's training text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from yanmo.formats import texts_at_hand
from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore


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
    texts = [text for _, text in texts_at_hand.training_sample(made)]
    assert len(texts) == len(made.entries("train-*.parquet")[:: -(-files // 16)])
    assert sum(map(len, texts)) == min(200_000, length * len(texts), 200_000 // len(texts) * len(texts))
