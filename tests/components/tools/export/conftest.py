"""A small store with a model whose whole lineage is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "generate"))  # importlib mode leaves it out

from saying import random_model

from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.tokenize.tokenizer_files import CHAT_TEMPLATE

TEXTS = (("诗", "a|b<c>`d`", "MIT"), ("诗", "tang", "CC-BY-SA-4.0"), ("词", "tang", ""))
"""Genre, source and licence of the training texts."""


class Lab:
    """The store, and what was committed to it."""

    def __init__(self, folder: Path) -> None:
        self.store = FileStore(folder / "store")
        self.uri = str(folder / "store")
        files = [{"name": "raw.jsonl", "sha256": "1" * 64, "bytes": 7}]
        raw = {"content_digest": "1" * 64, "uri": "file:///nowhere/raw.jsonl", "files": files}
        self.held = self._commit("evaluation_set", {"sources": raw}, _documents("test", 12))
        curated = self._commit(
            "curate", {"sources": raw, "evaluation_set": self.held}, _documents("train", 3), _LICENSES
        )
        cache = self._commit("tokenize", {"documents": curated}, lambda a: a.write("t.txt", "t"))
        self.model = self._commit("train", {"token_cache": cache, "model": None}, _model, {"ranks": 1})
        move_pointer(self.store, "main", "champion", self.model.reference)

    @property
    def folder(self) -> Path:
        """Of the model."""
        return self.model.path("config.json").parent

    def _commit(self, stage, inputs, write, metadata=None) -> Output:  # type: ignore[no-untyped-def]
        def build(attempt: Attempt) -> Result:
            write(attempt)
            return Result(counts={"steps": 5, "tokens": 90, "parameters": 1000}, metadata=metadata or {})

        recipe = Recipe(stage=stage, revision=1, semantic={"seed": 0, "note": "a|b"}, inputs=inputs)
        made = commit_once(self.store, recipe, build)
        assert made is not None
        return made

    def evaluate(self, bits: float) -> Output:
        """An evaluation of the model on the held-out texts."""
        figures = {"bits_per_character": bits, "interval": [bits - 0.1, bits + 0.1]}
        summary = {"conditions": {"evaluation_set": self.held.content_digest, "split": "test"}}
        summary |= {"genres": {"诗": figures, "词": figures}, "mean": figures}

        def write(attempt: Attempt) -> None:
            attempt.write("summary.json", json.dumps(summary))

        return self._commit("evaluate", {"model": self.model, "evaluation_set": self.held}, write)


_LICENSES = {"licenses": {"MIT": 1, "CC-BY-SA-4.0": 1, "": 1}, "text_form": "classical-1"}


def _documents(split: str, number: int):  # type: ignore[no-untyped-def]
    def write(attempt: Attempt) -> None:
        rows = []
        for i in range(number):
            genre, source, license = TEXTS[i % 3]
            text = "春眠不觉晓，处处闻啼鸟。\n夜来风雨声"[i % 4 :]
            row = {"id": document_id(source, str(i), text), "text": text, "genre": genre, "title": str(i)}
            row |= {"source": source, "license": license, "split": split, "author": "", "labels": []}
            rows.append(row)
        table = pa.Table.from_pylist(rows, schema=DOCUMENTS)
        write_parquet(table, attempt.path(f"{split}-00000-of-00001.parquet"))
        attempt.add(f"{split}-00000-of-00001.parquet")

    return write


def _model(attempt: Attempt) -> None:
    folder = attempt.path("config.json").parent
    random_model(folder)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE}
    config |= {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    for path in sorted(folder.iterdir()):
        attempt.add(path.name)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)
