"""`yanmo cache plan`: the figures it prints are those of the rows that training would get."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from yanmo.formats.packing import plan_epoch
from yanmo.formats.packing_settings import Packing
from yanmo.formats.records import GENRES
from yanmo.formats.token_cache import INDEX, SpecialIds, write_index, write_tokens
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.opening import open_store
from yanmo.store.pointers import move_pointer
from yanmo.tools.cache.command import TOOL
from yanmo.tools.command_group import main

LENGTHS = np.concatenate([np.arange(10, 90), [700, 1300]])


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A store with one token cache of 82 documents, the longest of 1,300 tokens."""
    root = tmp_path_factory.mktemp("store")
    store = open_store(str(root))
    special = SpecialIds(100, 0, 1, 2, 3, GENRES, (4, 5, 6, 7))

    def tokenizer(attempt) -> Result:
        attempt.write("genres.json", special.to_json())
        attempt.write("tokenizer.json", "{}")
        return Result(counts={})

    part = commit_once(store, Recipe(stage="tokenizer", revision=1, semantic={}, inputs={}), tokenizer)

    def cache(attempt) -> Result:
        ids = np.concatenate([[0, *[9] * (n - 2), 1] for n in LENGTHS])
        name = "00000-of-00001.parquet"
        digest = {"vocab_size": 100, "tokenizer": part.content_digest}
        write_tokens(attempt.path(f"tokens-{name}"), ids, split="train", **digest)
        columns = {
            "id": [f"{i:064x}" for i in range(len(LENGTHS))],
            "genre": ["诗"] * len(LENGTHS),
            "split": ["train"] * len(LENGTHS),
            "offset": np.cumsum(LENGTHS) - LENGTHS,
            "length": LENGTHS.astype(np.int32),
            "characters": (LENGTHS - 2).astype(np.int32),
            "loss_spans": pa.nulls(len(LENGTHS), INDEX.field("loss_spans").type),
        }
        write_index(attempt.path(f"documents-{name}"), pa.table(columns, schema=INDEX), **digest)
        attempt.add(f"tokens-{name}")
        attempt.add(f"documents-{name}")
        return Result(counts={"documents": len(LENGTHS)}, references={"tokenizer": part})

    output = commit_once(store, Recipe(stage="tokenize", revision=1, semantic={}, inputs={}), cache)
    move_pointer(store, "dev", "tokenize", output.reference)
    return root


def plans(root, capsys, *more: str) -> list[dict]:
    assert main(TOOL, ["plan", "dev/tokenize", "--store", str(root), "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)["plans"]


def test_every_packing_is_set_next_to_the_others(root, capsys):
    found = plans(root, capsys, "--context", "128,256")
    assert [(p["context"], p["packing"]) for p in found] == [
        (c, m) for c in (128, 256) for m in ("best-fit", "concat", "one")
    ]
    best, concat, one = found[:3]
    assert best["documents_cut"] == 2 and best["short_documents_cut"] == 0
    assert concat["documents_cut"] > 10 and concat["short_documents_cut"] == concat["documents_cut"] - 2
    assert concat["padding_share"] <= best["padding_share"] < 0.01 < 0.2 < one["padding_share"]
    assert {p["tokens"] for p in found} == {int((LENGTHS - 1).sum())}


def test_metrics_are_those_of_the_trainers_plan(root, capsys):
    (found,) = plans(root, capsys, "--context", "128", "--packing", "best-fit", "--tag-share", "0")
    plan = plan_epoch(LENGTHS, np.zeros(len(LENGTHS), bool), Packing(context=128), 0, 0)
    assert found["digest"] == plan.digest and found["rows"] == len(plan)
