"""`yanmo cache show | verify | diff` on real caches of a few poems."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from yanmo.common.errors import ExitCode
from yanmo.formats.records import DOCUMENTS, DOCUMENTS_WITH_TURNS, document_id, write_parquet
from yanmo.stage import run as stage_run
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo.tokenize.config import STAGE
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.work import STEPS
from yanmo.tools.cache.command import main

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
            code = main([argv[0], "--store", str(self.root), *argv[1:]])
        return code, out.getvalue()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Ground, list[str]]:
    """A store with two caches of one tokenizer: of three poems, and of two of them and a new one."""
    ground = Ground(tmp_path_factory.mktemp("store"))
    ground.documents(POEMS[:2], POEMS[2:])
    first = ground.tokenize()
    tokenizer = f"tokenizer/{first.part('tokenizer').manifest.key}"
    ground.documents([POEMS[0], "千山鸟飞绝，万径人踪灭。"], POEMS[2:])
    second = ground.tokenize("--tokenizer", tokenizer)
    return ground, [f"tokenize/{one.manifest.key}" for one in (first, second)]


def test_show_says_what_a_cache_holds_without_opening_it(made):
    ground, (first, _) = made
    code, output = ground.tool("show", first)
    assert code == 0
    assert "512 ids, stored as uint16" in output and "dictionary" in output
    rows = [line.split() for line in output.splitlines()]
    assert ["train", "诗", "2"] in [row[:3] for row in rows]
    assert "春眠不觉晓" in output


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_a_document_comes_back_as_it_was_by_number_and_by_id(made, number):
    ground, (first, _) = made
    text = POEMS[number]
    for what in (str(number), document_id("", "", text)[:12], document_id("", "", text)):
        code, output = ground.tool("show", first, f"--document={what}", "--json")
        (found,) = json.loads(output)
        assert code == 0 and found["text"] == text
        assert found["length"] == len(found["tokens"]) and (found["tokens"][0], found["tokens"][-1]) == (0, 1)


def test_grep_finds_text_that_spans_tokens_and_says_when_there_is_none(made):
    ground, (first, _) = made
    assert "黄河入海流" in ground.tool("show", first, "--grep", "日依山尽，黄")[1]
    assert "none of 3 documents holds '长江'" in ground.tool("show", first, "--grep", "长江")[1]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["show", "tokenize/ffff"], ExitCode.DATA),
        (["show", "dev/curate"], ExitCode.DATA),
        (["show", "dev/tokenize", "--document=3"], ExitCode.USAGE),
        (["show", "dev/tokenize", "--document=-4"], ExitCode.USAGE),
        (["show", "dev/tokenize", "--document=zz"], ExitCode.USAGE),
        (["show", "dev/tokenize", "--document=0", "--grep=x"], ExitCode.USAGE),
        (["show", "dev/tokenize", "--grep=x", "--most=0"], ExitCode.USAGE),
        (["verify", "dev/tokenize", "--sample=-2"], ExitCode.USAGE),
        (["diff", "dev/tokenize"], ExitCode.USAGE),
    ],
)
def test_wrong_arguments_are_refused_with_their_code(made, argv, code):
    assert made[0].tool(*argv)[0] == code


def test_a_whole_cache_is_reported_as_whole(made):
    ground, caches = made
    for cache in caches:
        code, output = ground.tool("verify", cache)
        assert code == 0 and output.startswith("whole: 3 documents") and "3 documents encoded again" in output


def test_a_flipped_bit_in_any_file_of_a_cache_or_its_tokenizer_is_found(made):
    ground, (first, _) = made
    folders = [ground.root / "cas" / first, ground.root / "cas" / "tokenizer"]
    paths = [p for folder in folders for p in folder.rglob("*") if p.is_file() and "MANIFEST" not in p.name]
    assert len(paths) >= 8
    for path in paths:
        whole = path.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            assert ground.tool("verify", first)[0] == ExitCode.DATA, path
        path.write_bytes(whole[:-3])
        assert ground.tool("verify", first)[0] == ExitCode.DATA, path
        path.write_bytes(whole)
    assert ground.tool("verify", first)[0] == 0


def test_diff_names_the_shard_the_documents_and_the_counts(made):
    ground, (first, second) = made
    code, output = ground.tool("diff", first, second, "--json")
    found = json.loads(output)
    assert code == 0 and not found["same_content"]
    assert [line.split(":")[0] for line in found["shards"]] == ["train-00000-of-00002.parquet"]
    gone, new = document_id("", "", POEMS[1]), document_id("", "", "千山鸟飞绝，万径人踪灭。")
    assert found["documents"] == {"only in A": [gone], "only in B": [new]}
    fields = {name for name, _, _ in found["fields"]}
    assert "corpus" in fields and "digest of documents" in fields and "digest of tokenizer" not in fields


def test_diff_of_a_cache_with_itself_finds_nothing(made):
    ground, (first, _) = made
    code, output = ground.tool("diff", first, first)
    assert code == 0 and output.splitlines()[2:] == ["the same content"]


def test_diff_names_what_two_tokenizers_do_not_share(tmp_path):
    ground = Ground(tmp_path)
    ground.documents(POEMS[:2], POEMS[2:])
    first = ground.tokenize()
    second = ground.tokenize("--vocab-size=600")
    names = [f"tokenize/{one.manifest.key}" for one in (first, second)]
    found = json.loads(ground.tool("diff", *names, "--json")[1])
    fields = {name: (left, right) for name, left, right in found["fields"]}
    assert fields["option vocab_size"] == [512, 600] or fields["option vocab_size"] == (512, 600)
    assert fields["digest of vocab_size"] == (512, 600)
    assert "tokenizer file tokenizer.json" in fields
    assert fields["pieces in one only, number"][1] >= 88
    assert len(found["documents"].get("with other tokens", [])) >= 1 and not found["shards"]


def test_ids_that_its_tokenizer_would_not_give_are_found(tmp_path, monkeypatch, capsys):
    """They decode to the right text, so that nothing but encoding again can tell."""
    ground = Ground(tmp_path)
    ground.documents(POEMS[:2], POEMS[2:])
    encode = Segmenter.encode

    def as_bytes(self, column, bos=-1, eos=-1):
        _, _, characters = encode(self, column, bos, eos)
        texts = [text.encode() for text in column.to_pylist()]
        ids = np.concatenate([[bos, *(self.byte0 + b for b in text), eos] for text in texts]).astype(np.int32)
        return ids, np.cumsum([0, *(len(text) + 2 for text in texts)]), characters

    ground.tokenize()
    tokenizer = f"tokenizer/{next((tmp_path / 'cas' / 'tokenizer').iterdir()).name}"
    for stage in ("tokenize", "token_shard"):
        shutil.rmtree(tmp_path / "cas" / stage)
    monkeypatch.setattr(Segmenter, "encode", as_bytes)
    ground.tokenize("--judged=0", "--tokenizer", tokenizer)
    assert ground.tool("verify", "dev/tokenize", "--sample=0")[0] == ExitCode.DONE
    assert ground.tool("verify", "dev/tokenize")[0] == ExitCode.DATA
    assert "its tokenizer gives other ids from token" in capsys.readouterr().err


def test_a_cache_of_chats_is_whole(tmp_path):
    store, text = FileStore(tmp_path), "何为砚？磨墨之器。"
    turns = [{"role": "user", "begin": 0, "end": 4}, {"role": "assistant", "begin": 4, "end": len(text)}]

    def build(attempt):
        for split in ("train", "valid"):
            row = dict.fromkeys(DOCUMENTS_WITH_TURNS.names)
            row |= {"id": document_id("", split, text), "text": text, "genre": "问答", "labels": []}
            row |= {"title": "", "author": "", "source": "", "license": "", "split": split, "turns": turns}
            table = pa.Table.from_pylist([row], schema=DOCUMENTS_WITH_TURNS)
            write_parquet(table, attempt.path(f"{split}-00000-of-00001.parquet"))
            attempt.add(f"{split}-00000-of-00001.parquet")
        return Result(counts={})

    made = commit_once(store, Recipe(stage="curate", revision=1, semantic={}, inputs={}), build)
    move_pointer(store, "dev", "curate", made.reference)
    ground = Ground(tmp_path)
    ground.tokenize()
    code, output = ground.tool("verify", "dev/tokenize")
    assert code == 0 and "2 documents encoded again" in output
    assert (
        "<|im_start|>assistant\n磨墨之器。<|im_end|>"
        in ground.tool("show", "dev/tokenize", "--document=0")[1]
    )
