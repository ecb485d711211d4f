"""What the tests of `yanmo store` work on."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import sealed
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.in_use import work_name
from yanmo.tools.store.command import main

RAW = {"content_digest": "5" * 64, "uri": "file:///raw/tang.jsonl", "files": []}
TEXTS = ("春江潮水连海平", "海上明月共潮生", "滟滟随波千万里")


def rows(texts: tuple[str, ...] = TEXTS) -> list[dict[str, Any]]:
    """Documents v1, sorted by id."""
    empty = {field.name: None for field in DOCUMENTS}
    made = []
    for number, text in enumerate(texts):
        row = {**empty, "text": text, "genre": "诗", "labels": {}, "title": str(number), "author": "张若虚"}
        row |= {"source": "全唐诗", "license": "MIT", "split": "train"}
        made.append({**row, "id": document_id(row["source"], row["title"], text)})
    return sorted(made, key=lambda row: str(row["id"]))


def ids(texts: tuple[str, ...] = TEXTS) -> list[str]:
    return [row["id"] for row in rows(texts)]


@dataclass
class Said:
    """How a command ended."""

    code: int
    out: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Ground:
    """A store with a whole chain in it, and the tool to be tested on it."""

    uri: str
    outputs: dict[str, Output] = field(default_factory=dict)

    @property
    def store(self) -> ObjectStore:
        """The store as a process of its own would open it."""
        return open_store(self.uri)

    @property
    def folder(self) -> FileStore:
        store = self.store
        assert isinstance(store, FileStore)
        return store

    def tool(self, *argv: str) -> Said:
        """Run `yanmo store ...` on this store."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = main([argv[0], "--store", self.uri, *argv[1:]])
        return Said(code, out.getvalue())

    def gc(self, *argv: str, age: str = "0") -> Said:
        return self.tool("gc", "--older-than", age, "--delete", *argv)

    def commit(
        self,
        stage: str,
        *,
        inputs: dict[str, Any] | None = None,
        parts: dict[str, Output] | None = None,
        text: str = "诗",
        force: bool = False,
        **options: Any,
    ) -> Output:
        """Commit a small output; `documents` gets a real Parquet file."""

        def build(attempt: Attempt) -> Result:
            if stage == "documents":
                table = pa.Table.from_pylist(rows(), schema=DOCUMENTS)
                write_parquet(table, attempt.path("train-00000-of-00001.parquet"))
                attempt.add("train-00000-of-00001.parquet")
            attempt.write("content.txt", text)
            attempt.write("log.txt", "a record", role="record")
            return Result(counts={"characters": len(text)}, references=parts or {})

        recipe = Recipe(stage=stage, revision=1, semantic=options, inputs=inputs or {})
        made = commit_once(self.store, recipe, build, force=force, wait_seconds=0.05)
        assert made is not None
        return made

    def chain(self) -> Ground:
        """raw -> documents -> tokenizer, cache -> model (champion) and an older champion in the history."""
        documents = self.commit("documents", inputs={"sources": RAW})
        tokenizer = self.commit("tokenizer", inputs={"documents": documents})
        cache = self.commit(
            "cache", inputs={"documents": documents, "tokenizer": tokenizer}, parts={"tokenizer": tokenizer}
        )
        old = self.commit("train", inputs={"cache": cache}, seed=0, text="旧")
        model = self.commit("train", inputs={"cache": cache}, seed=1, text="新")
        move_pointer(self.store, "demo", "champion", model.reference)
        record = {"schema": "yanmo.promotion/1", "number": 1, "champion_since": "2026-11-20T03:00:00+00:00"}
        record |= {"model": vars(model.reference), "previous": vars(old.reference)}
        self.store.create("pointers/demo/history/000001.json", sealed(json.dumps(record, indent=1).encode()))
        named = {"documents": documents, "tokenizer": tokenizer, "cache": cache, "old": old, "model": model}
        self.outputs |= named
        return self

    def unwanted(self) -> Output:
        """An output that nothing refers to."""
        return self.commit("train", inputs={"sources": RAW}, seed=2, text="谁也不要")

    def names(self, prefix: str = "") -> list[str]:
        return [info.name for info in self.store.list(prefix)]

    def write(self, name: str, data: bytes = b"1") -> None:
        self.store.create(name, data)


def work_of(output: Output) -> str:
    return work_name(output.manifest.stage, output.manifest.key)


def folder_of(output: Output) -> str:
    return f"cas/{output.manifest.stage}/{output.manifest.key}"
