"""What cannot work is refused, mostly before a worker starts: exit code, what was found, what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from yanmo.options.fields import flag
from yanmo.stage.run import main
from yanmo.stage.stage_run import Steps
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.checkpoints import checkpoint
from yanmo.train.config import STAGE
from yanmo.train.supervision.committed import forget
from yanmo.train.supervision.supervisor import prepare, work

SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 48,
    "tie_word_embeddings": False,
    "vocab_size": 400,
}
"""Of the fixture `tiny`, as a config.json says it."""


@pytest.fixture
def command(store, tiny, capsys):
    """Run `yanmo train` in this process: command(option=value, ...) -> (exit code, what it said)."""

    def run(**options) -> tuple[int, str]:
        asked = {**tiny, **options}
        folder = asked.pop("store", store)
        flags = [f"{flag(name)}={value}" for name, value in asked.items() if value is not None]
        argv = [f"--store={folder}", "--metrics-port=-1", *flags]
        code = main(STAGE, Steps(work, prepare=prepare, finish=forget), argv)
        return code, capsys.readouterr().err

    return run


def no_worker_began(store: Path) -> bool:
    return not list(Path(store).glob("runs/train/*/job.json"))


def model_like(
    store: Path, config: str = "", tokenizer: str = "", weights: dict | None = None, **shape
) -> str:
    """Commit a model of that shape, without weights or with these; its name."""
    opened = open_store(str(store))
    cache = open_reference(opened, read_pointer(opened, "dev", "tokenize"))
    tokenizer = tokenizer or cache.part("tokenizer").path("tokenizer.json").read_text(encoding="utf-8")
    config = config or json.dumps({"model_type": "qwen3", **SHAPE, **shape})

    def build(attempt) -> Result:
        attempt.write("config.json", config)
        attempt.write("tokenizer.json", tokenizer)
        if weights is not None:
            save_file(weights, attempt.path("model.safetensors"))
            attempt.add("model.safetensors")
        return Result(counts={})

    recipe = Recipe(stage="train", revision=1, semantic={"test": [tokenizer, config]}, inputs={})
    assert commit_once(opened, recipe, build) is not None
    return f"train/{recipe.key}"


@pytest.mark.parametrize(
    ("options", "found", "what_to_do"),
    [
        ({"micro_batch": 3}, "--micro-batch 3 does not divide the 8 rows", "give a number that does"),
        ({"preset": "gpu-3gb"}, "--preset gpu-3gb", "gpu-4gb"),
    ],
    ids=lambda x: "-".join(f"{k}={v}" for k, v in x.items()) if isinstance(x, dict) else "",
)
def test_options_that_contradict_are_named(options, found, what_to_do, command, store):
    code, said = command(**options)
    assert code == 64 and found in said and what_to_do in said, said
    assert no_worker_began(store)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_here_is_the_machines_fault(command, store):
    code, said = command(device="mps", backend="torch")
    assert code == 78 and "--device mps: this machine has no such device" in said, said


def test_a_model_of_another_tokenizer_is_refused_before_a_worker_starts(command, store):
    code, said = command(model=model_like(store, tokenizer="{}"))
    assert code == 65 and "is not the token cache's" in said and "yanmo tokenize --tokenizer" in said, said
    assert no_worker_began(store)


def test_a_model_of_a_smaller_vocabulary_is_refused_before_a_worker_starts(command, store):
    code, said = command(model=model_like(store, vocab_size=399))
    assert code == 65 and "vocabulary of 399, the token cache has 400" in said, said
    assert no_worker_began(store)


def test_a_starting_model_whose_weights_are_no_numbers_is_refused_before_a_worker_starts(command, store):
    """Its manifest is whole; training on it would end with advice about learning rates."""
    weights = {"model.norm.weight": torch.tensor([1.0, float("nan"), float("inf")])}
    code, said = command(model=model_like(store, weights=weights))
    assert code == 65 and "model.safetensors: model.norm.weight: 2 of 3 weights are no finite" in said, said
    assert no_worker_began(store)


def test_a_starting_model_that_does_not_fit_into_memory_is_refused_by_its_own_shape(command, store):
    wide = model_like(store, hidden_size=512, intermediate_size=2048, num_hidden_layers=30)
    code, said = command(model=wide, memory_gib=1)
    assert code == 78 and "this training needs" in said and "would" in said, said
    assert "the starting model decides the shape: layers 30, not 2; width 512, not 32" in said
    assert no_worker_began(store)


@pytest.mark.parametrize("text", ["[]", "{", "\n", '{"vocab_size": 400}'])
def test_a_starting_model_whose_config_is_none_is_refused(text, command, store):
    code, said = command(model=model_like(store, config=text))
    assert code == 65 and "config.json" in said, said
    assert no_worker_began(store)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_key_value_heads", 0),
        ("hidden_size", "32"),
        ("num_hidden_layers", -1),
        ("num_attention_heads", None),
        ("head_dim", 15),
        ("tie_word_embeddings", 1),
        ("intermediate_size", 4.5),
    ],
)
def test_a_starting_model_of_an_impossible_shape_is_refused(name, value, command, store):
    code, said = command(model=model_like(store, **{name: value}))
    assert code == 65 and "has an impossible shape" in said and f"{name} {value!r}" in said, said
    assert no_worker_began(store)


@pytest.mark.process
def test_a_checkpoint_of_another_training_in_the_runs_folder_is_refused_by_name(command, store):
    assert command(max_seconds=1, steps=100_000)[0] == 0
    (donor,) = store.glob("runs/train/*")
    assert command(max_seconds=1e-6, layers=1)[0] == 0, "over before a worker began"
    (other,) = set(store.glob("runs/train/*")) - {donor}
    shutil.copytree(donor / "checkpoints", other / "checkpoints")
    code, said = command(layers=1)
    assert code == 65 and "made with another model shape" in said and "delete the folder" in said, said


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("damage", ["absent", "empty", "cut", "one byte more", "one bit"])
@pytest.mark.parametrize("name", ["index.json", "manifest.json", "rank-00000.safetensors"])
def test_half_a_checkpoint_costs_the_steps_since_the_one_before(name, damage, tmp_path, caplog):
    for step in (3, 6):
        temporary = tmp_path / f".tmp-{checkpoint.name_of(step)}"
        checkpoint.write_rank(temporary, 0, {"weight/0/a": torch.arange(9.0)})
        checkpoint.commit(
            temporary, tmp_path / checkpoint.name_of(step), '{"step": 3, "keep": false, "ranks": 1}'
        )
    newest = tmp_path / checkpoint.name_of(6)
    assert files_of(newest) == ["index.json", "manifest.json", "rank-00000.safetensors"], "each is a case"
    path = newest / name
    data = path.read_bytes()
    path.unlink()
    changed = {"empty": b"", "cut": data[:-1], "one byte more": data + b"}"}
    changed["one bit"] = bytes([data[0] ^ 1]) + data[1:]
    if damage != "absent":
        path.write_bytes(changed[damage])
    assert checkpoint.newest(tmp_path) == tmp_path / checkpoint.name_of(3)
    assert "is damaged" in caplog.text and name in caplog.text and "trying the one before" in caplog.text
