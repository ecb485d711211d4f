"""`yanmo cache show` on real caches of a few poems."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from yanmo.common.errors import ExitCode
from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.stage import run as stage_run
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo.tokenize.config import STAGE
from yanmo.tokenize.work import STEPS
from yanmo.tools.cache.command import TOOL
from yanmo.tools.command_group import main

POEMS = [
    "春眠不觉晓，处处闻啼鸟。\n夜来风雨声，花落知多少。",
    "白日依山尽，黄河入海流。",
    "<|eos|>不是结尾𪚥",
]


@dataclass
class Ground:
    root: Path

    def documents(self, *shards: list[str]) -> None:
        store = FileStore(self.root)

        def build(attempt):
            for k, texts in enumerate(shards):
                split = "valid" if k == len(shards) - 1 else "train"
                rows = [
                    dict.fromkeys(DOCUMENTS.names)
                    | {"id": document_id("", "", text), "text": text, "genre": "诗", "labels": []}
                    | {"title": "", "author": "", "source": "", "license": "", "split": split}
                    for text in texts
                ]
                name = f"{split}-{k:05d}-of-{len(shards):05d}.parquet"
                write_parquet(pa.Table.from_pylist(rows, schema=DOCUMENTS), attempt.path(name))
                attempt.add(name)
            return Result(counts={})

        recipe = Recipe(stage="curate", revision=1, semantic={"texts": list(shards)}, inputs={})
        move_pointer(store, "dev", "curate", commit_once(store, recipe, build).reference)

    def tokenize(self, *argv: str) -> Output:
        fixed = ["--vocab-size=512", "--agreement-sentences=0", "--metrics-port=-1"]
        command = ["--store", str(self.root), *fixed, *argv]
        assert stage_run.main(STAGE, STEPS, command) == 0
        store = FileStore(self.root)
        return open_reference(store, read_pointer(store, "dev", "tokenize"))

    def tool(self, *argv: str) -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = main(TOOL, [argv[0], "--store", str(self.root), *argv[1:]])
        return code, out.getvalue()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Ground, list[str]]:
    """A store with a cache of three poems."""
    ground = Ground(tmp_path_factory.mktemp("store"))
    ground.documents(POEMS[:2], POEMS[2:])
    first = ground.tokenize()
    return ground, [f"tokenize/{first.manifest.key}"]


def test_show_says_what_a_cache_holds_without_opening_it(made):
    ground, (first,) = made
    code, output = ground.tool("show", first)
    assert code == 0
    assert "512 ids, stored as uint16" in output and "dictionary" in output
    rows = [line.split() for line in output.splitlines()]
    assert ["train", "诗", "2"] in [row[:3] for row in rows]


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_a_document_comes_back_as_it_was_by_number_and_by_id(made, number):
    ground, (first,) = made
    text = POEMS[number]
    for what in (str(number), document_id("", "", text)[:12], document_id("", "", text)):
        code, output = ground.tool("show", first, f"--document={what}", "--json")
        found = json.loads(output)
        assert code == 0 and found["text"] == text
        assert found["length"] == len(found["tokens"]) and (found["tokens"][0], found["tokens"][-1]) == (0, 1)


def test_a_token_with_a_line_break_does_not_break_the_line_of_tokens(made):
    ground, (first,) = made
    code, output = ground.tool("show", first, "--document=0")
    (line,) = [line for line in output.splitlines() if "<|bos|>/" in line]
    assert code == 0 and "\\n/" in line and "<|eos|>/" in line


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["show", "tokenize/ffff"], ExitCode.DATA),
        (["show", "dev/curate"], ExitCode.DATA),
        (["show", "dev/tokenize", "--document=3"], ExitCode.USAGE),
        (["show", "dev/tokenize", "--document=-4"], ExitCode.USAGE),
        (["show", "dev/tokenize", "--document=zz"], ExitCode.USAGE),
    ],
)
def test_wrong_arguments_are_refused_with_their_code(made, argv, code):
    assert made[0].tool(*argv)[0] == code
