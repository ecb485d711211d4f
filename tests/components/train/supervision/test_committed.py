"""The card that goes with a model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output
from yanmo.train.config import TrainConfig
from yanmo.train.supervision.committed import licenses_of, model_card


def made(store: FileStore, stage: str, metadata: dict[str, Any], documents: Output | None = None) -> Output:
    def build(attempt: Attempt) -> Result:
        attempt.write("x.txt", stage)
        return Result(counts={}, metadata=metadata)

    inputs = {"documents": documents} if documents else {}
    output = commit_once(store, Recipe(stage=stage, revision=1, semantic={}, inputs=inputs), build)
    assert output is not None
    return output


def chain(store: FileStore) -> Output:
    curated = made(store, "curate", {"licenses": {"MIT": 31986, "CC-BY-SA-4.0": 1844}})
    return made(store, "tokenize", {}, made(store, "balance", {}, curated))


def test_the_licences_that_curate_counted_reach_the_card(tmp_path: Path) -> None:
    cache = chain(FileStore(tmp_path))
    result = {"parameters": 4_330_000, "steps": 450, "tokens": 890_000, "layers": 5, "width": 96}
    card = model_card(TrainConfig(tag_share=0.25), result, {"诗": 7.9}, cache)
    assert "by documents: CC-BY-SA-4.0 1,844, MIT 31,986." in card
    assert "(4.33 M parameters, 5 layers, width 96), trained for 450" in card
    assert "as it did in\n25 % of" in card and "| 诗 | 7.900 |" in card


def test_a_model_that_was_trained_from_another_names_it_and_its_own_marks(tmp_path: Path) -> None:
    cache = chain(FileStore(tmp_path))
    base = made(FileStore(tmp_path), "train", {})
    result = {"parameters": 4_330_000, "steps": 450, "tokens": 890_000, "layers": 5, "width": 96}
    marks = ("<|endoftext|>", "<|im_end|>")
    card = model_card(TrainConfig(), result, {}, cache, base, marks, has_tags=False)
    assert f"It goes on\nfrom `train/{base.manifest.key}`, whose own licence holds too." in card
    assert (
        "A text begins with `<|endoftext|>` and ends with `<|im_end|>`." in card and "genres.json" not in card
    )
    adapted = TrainConfig(lora_rank=8, optimizer="adamw")
    card = model_card(adapted, result | {"trained_parameters": 20_000}, {}, cache, base)
    assert "with what LoRA of rank 8 added: 0.02 M parameters were\ntrained" in card


def test_a_lineage_that_is_gone_loses_no_model(tmp_path: Path) -> None:
    cache = chain(FileStore(tmp_path))
    shutil.rmtree(tmp_path / "cas/balance")
    assert licenses_of(cache) == "not known"


def test_a_validation_that_was_no_number_does_not_lose_the_model(tmp_path: Path) -> None:
    result = {"parameters": 4_330_000, "steps": 450, "tokens": 890_000, "layers": 3, "width": 192}
    card = model_card(TrainConfig(), result, {"\u8bd7": None, "mean": None}, chain(FileStore(tmp_path)))
    assert "| mean | not finite |" in card
