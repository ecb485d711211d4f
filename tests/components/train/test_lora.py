"""An adapter trained beside a frozen model: exact resume, small checkpoints, peft's own sums."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tiny_model import SHAPE

from yanmo.common.errors import DataError, UsageError
from yanmo.model.decoder import Decoder, Lora
from yanmo.model.hf_export import Symbols, load, save
from yanmo.model.lora import WEIGHTS, adapt
from yanmo.options.command_line import load as load_options
from yanmo.options.fields import by_kind
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train import job
from yanmo.train.config import TrainConfig

pytestmark = pytest.mark.usefixtures("one_rank")
LORA = {"lora_rank": 4, "lora_alpha": 8.0, "optimizer": "adamw", "adam_learning_rate": 0.01}
LORA |= {"adam_beta2": 0.95}  # also where --size tiny has its own: here the class and the command must agree


def make_base(store: Path, seed: int) -> Output:
    """A Qwen2-type model with drawn weights and the tokenizer of the store's token cache."""
    torch.manual_seed(seed)
    wider = {"vocab_size": 400, "max_position_embeddings": 32}
    model = Decoder(replace(SHAPE, **wider, tie_word_embeddings=True, model_type="qwen2"))
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.1)
    files = open_store(str(store))
    reference = read_pointer(files, "dev", "tokenize")
    assert reference is not None
    tokenizer = open_reference(files, reference).part("tokenizer").path("tokenizer.json")

    def build(attempt) -> Result:
        folder = attempt.path("config.json").parent
        for name in save(model, Symbols(bos=0, eos=1, pad=2), folder, [tokenizer]):
            attempt.add(name)
        return Result(counts={"steps": 0})

    output = commit_once(files, Recipe(stage="train", revision=1, semantic={"x": seed}, inputs={}), build)
    assert output is not None
    return output


@pytest.fixture
def base(store) -> Output:
    return make_base(store, seed=9)


@pytest.fixture
def tune(base, train):
    """Trains in this process, from `base`; stops after `stop_at` steps."""

    def run(folder: str, stop_at: int | None = None, start: Output = base, **options) -> job.Status:
        return train(folder, stop_at, start.reference, **{**LORA, **options})

    return run


@pytest.mark.long(few=2)
@pytest.mark.parametrize(
    "options",
    [
        {"precision": "fp32"},
        {"precision": "bf16", "micro_batch": 4},
        {"precision": "fp32", "zero_stage": 2, "lora_dropout": 0.2, "gradient_checkpointing": True},
        {"precision": "fp32", "zero_stage": 3, "gradient_checkpointing": True},
        {"precision": "bf16", "zero_stage": 3, "lora_targets": "q_proj,v_proj"},
        {"precision": "fp32", "backend": "torch"},
        {"precision": "bf16", "backend": "torch", "monitor": "full", "monitor_every": 3},
    ],
    ids=lambda o: "-".join(map(str, o.values())),
)
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_last_digit(options, tune, tmp_path):
    assert tune("whole", **options).state == "done"
    for stop_at in (2, 5):
        status = tune("cut", stop_at=stop_at, **options)
        assert (status.state, status.step) == ("paused", stop_at)
    assert tune("cut", **options).state == "done"
    for name in ("model.safetensors", "adapter/adapter_model.safetensors"):
        whole, cut = ((tmp_path / f / job.EXPORT / name).read_bytes() for f in ("whole", "cut"))
        assert whole == cut, name


def test_only_the_adapter_is_trained_saved_and_added(tune, base, tmp_path):
    tune("a", stop_at=4)
    (part,) = (tmp_path / "a" / job.CHECKPOINTS).glob("step-*/rank-*.safetensors")
    with safe_open(part, "pt") as file:
        keys = [key for key in file.keys() if "/" in key]  # noqa: SIM118
        numbers = sum(file.get_tensor(key).numel() for key in keys)
    assert all(".lora_A." in key or ".lora_B." in key for key in keys)
    assert numbers == 3 * lora_parameters(4), "a weight and two states of each"
    tune("a")
    export, start = tmp_path / "a" / job.EXPORT, base.path("config.json").parent
    before, after = load(start).model.state_dict(), load(export).model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {n for n in before if n.endswith("proj.weight")}
    adapter = load_file(export / "adapter" / "adapter_model.safetensors")
    for name in changed:
        a, b = (
            adapter[f"base_model.model.{name.removesuffix('.weight')}.lora_{x}.weight"].double() for x in "AB"
        )
        expected = before[name].double() + 2.0 * b @ a
        torch.testing.assert_close(after[name].double(), expected, rtol=0, atol=1e-6)
    result = json.loads((export / job.RESULT).read_text())
    assert result["trained_parameters"] == lora_parameters(4)
    assert result["parameters"] == sum(v.numel() for n, v in before.items() if n != "lm_head.weight")


def lora_parameters(rank: int) -> int:
    """Of both layers of `base`: inputs and outputs of q, k, v, o, gate, up, down."""
    sizes = [(32, 32), (32, 16), (32, 16), (32, 32), (32, 48), (32, 48), (48, 32)]
    return 2 * rank * sum(a + b for a, b in sizes)


def test_the_loss_falls(tune, tmp_path):
    tune("a", steps=60, adam_learning_rate=0.03)
    lines = (tmp_path / "a" / job.METRICS).read_text(encoding="utf-8").splitlines()
    losses = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
    assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5 - 0.3


def test_backends_and_stages_make_the_same_adapter(tune, tmp_path):
    found = {}
    for name, options in {
        "torch": {"backend": "torch"},
        "zero-1": {},
        "zero-3": {"zero_stage": 3},
        "again": {"gradient_checkpointing": True, "micro_batch": 2},
    }.items():
        tune(name, **options)
        found[name] = load_file(tmp_path / name / job.EXPORT / "adapter" / WEIGHTS)
    for name, weights in found.items():
        for key, value in weights.items():
            torch.testing.assert_close(value, found["torch"][key], rtol=0, atol=3e-4, msg=f"{name} {key}")


@pytest.mark.process
@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_two_ranks_make_the_adapter_of_one(zero_stage, tune, base, store, tiny, tmp_path):
    tune("alone", backend="torch")
    asked = {**tiny, **LORA, "ranks": 2, "zero_stage": zero_stage, "model": f"train/{base.manifest.key}"}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    command = [sys.executable, "-m", "yanmo.train", f"--store={store}", "--metrics-port=-1", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = open_store(str(store))
    made = open_reference(files, read_pointer(files, "dev", "train"))
    made.paths("*")
    together = load_file(made.path(f"adapter/{WEIGHTS}"))
    for name, value in load_file(tmp_path / "alone" / job.EXPORT / "adapter" / WEIGHTS).items():
        torch.testing.assert_close(together[name], value, rtol=0, atol=3e-4, msg=name)


def test_a_checkpoint_beside_another_model_is_refused(tune, store):
    tune("a", stop_at=3)
    with pytest.raises(DataError, match="made with another frozen model"):
        tune("a", start=make_base(store, seed=10))


def test_an_adapted_decoder_begins_as_it_was(base):
    model = load(base.path("config.json").parent).model
    ids = torch.randint(0, 400, (2, 20))
    before = model(ids)
    adapt(model, Lora(rank=4, alpha=8.0, dropout=0.5, targets=("q_proj", "down_proj")), seed=1)
    assert torch.equal(model.eval()(ids), before)
    assert {n.split(".")[-3] for n, p in model.named_parameters() if p.requires_grad} == {
        "q_proj",
        "down_proj",
    }


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"lora_rank": 4}, "--optimizer adamw"),
        ({"lora_alpha": 3.0}, "give --lora-rank"),
        ({"lora_rank": 4, "optimizer": "adamw", "lora_targets": "q,v_proj"}, "found 'q'"),
    ],
)
def test_options_without_sense_are_refused(options, word):
    with pytest.raises(UsageError, match=word):
        TrainConfig(**options)


def test_lora_has_an_optimizer_and_a_rate_of_its_own_unless_they_are_given():
    def optimizer(*flags: str) -> tuple[str, float]:
        found = load_options(TrainConfig, list(flags), "yanmo train")
        return found.optimizer, found.adam_learning_rate

    assert optimizer() == ("muon", 0.01)
    assert optimizer("--lora-rank=4") == ("adamw", 0.0002)
    assert optimizer("--lora-rank=4", "--adam-learning-rate=0.001") == ("adamw", 0.001)
    with pytest.raises(UsageError, match="--optimizer adamw"):
        optimizer("--lora-rank=4", "--optimizer=muon")


def test_options_at_their_defaults_are_in_no_key():
    plain = by_kind(load_options(TrainConfig, [], "yanmo train"), "semantic")
    adapted = by_kind(
        load_options(TrainConfig, ["--lora-rank=4", "--lora-dropout=0.1"], "yanmo train"), "semantic"
    )
    assert not [name for name in plain if "lora" in name]
    assert {name for name in adapted if "lora" in name} == {"lora_rank", "lora_dropout"}


def test_the_adapter_is_pefts(tune, base, tmp_path):
    """Through peft and transformers the adapter on the base is the merged model."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    tune("a")
    export, start = tmp_path / "a" / job.EXPORT, base.path("config.json").parent
    below = transformers.AutoModelForCausalLM.from_pretrained(start)
    theirs = peft.PeftModel.from_pretrained(below, export / "adapter").eval()
    ids = torch.randint(0, 400, (2, 20))
    with torch.no_grad():
        merged, plain = load(export).model(ids), load(start).model(ids)
        assert (merged - plain).abs().max() > 0.05
        torch.testing.assert_close(theirs(ids).logits, merged, rtol=0, atol=1e-4)
