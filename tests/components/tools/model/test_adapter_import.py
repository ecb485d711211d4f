"""An adapter comes onto the model that it belongs to, and onto no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from yanmo.model.adapter_files import CONFIG, WEIGHTS, write_adapter
from yanmo.model.hf_export import load
from yanmo.model.lora import A, adapt
from yanmo.model.lora_shape import Lora
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, find_output

LORA = Lora(rank=2, alpha=6.0, dropout=0.0, targets=("o_proj", "q_proj"))


def run(store: Path, capsys, *words: str) -> tuple[int, str, str]:
    from yanmo.tools.command_group import main
    from yanmo.tools.model.command import TOOL

    code = main(TOOL, ["import", *words, "--store", str(store)])
    shown = capsys.readouterr()
    return code, shown.out.strip(), shown.err


def opened(store: Path, name: str) -> Output:
    output = find_output(FileStore(store), "train", name.removeprefix("train/"))
    assert output is not None
    output.paths("*")
    return output


@pytest.fixture
def base(store, folder, capsys) -> str:
    code, name, _ = run(store, capsys, str(folder))
    assert code == 0
    return name


@pytest.fixture
def adapter(store, base, tmp_path) -> Path:
    """Of `base`, with drawn weights."""
    output = opened(store, base)
    model = load(output.path("config.json").parent).model
    adapt(model, LORA, seed=1)
    weights = {name: torch.randn_like(p) * 0.1 for name, p in model.named_parameters() if p.requires_grad}
    write_adapter(tmp_path / "adapter", weights, LORA, base, output.content_digest)
    return tmp_path / "adapter"


def test_it_is_added_to_its_base(store, base, adapter, capsys, folder):
    code, name, said = run(store, capsys, str(adapter), "--base", base)
    assert code == 0, said
    made = opened(store, name).path("config.json").parent
    before, after = load(folder).model, load(made).model.state_dict()
    weights = load_file(adapter / WEIGHTS)
    for name, value in before.state_dict().items():
        a = weights.get(f"base_model.model.{name.removesuffix('.weight')}{A}")
        if a is None:
            assert torch.equal(after[name], value), name
            continue
        b = weights[f"base_model.model.{name.removesuffix('.weight')}.lora_B.weight"]
        torch.testing.assert_close(after[name], value + 3.0 * b @ a, rtol=0, atol=1e-6)
    assert (made / "adapter" / CONFIG).read_bytes() == (adapter / CONFIG).read_bytes()
    assert (made / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_another_model_is_refused_by_its_digest(store, base, adapter, capsys, folder):
    (weights,) = (path for path in sorted(folder.glob("*.safetensors"))[:1])
    state = load_file(weights)
    save_file({name: value + 1e-3 for name, value in state.items()}, weights, metadata={"format": "pt"})
    code, other, _ = run(store, capsys, str(folder))
    assert code == 0 and other != base
    code, out, said = run(store, capsys, str(adapter), "--base", other)
    assert code == 65 and not out
    assert opened(store, base).content_digest[:12] in said and "name the model that it belongs to" in said


def change(**values):
    def damage(place: Path) -> None:
        value = json.loads((place / CONFIG).read_text(encoding="utf-8")) | values
        (place / CONFIG).write_text(json.dumps(value), encoding="utf-8")

    return damage


def tensors(rule):
    def damage(place: Path) -> None:
        state = load_file(place / WEIGHTS)
        rule(state)
        save_file(state, place / WEIGHTS)

    return damage


def pickled(place: Path) -> None:
    (place / WEIGHTS).rename(place / "adapter_model.bin")


FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
DAMAGES = {
    "dora": (change(use_dora=True), "use_dora True is not supported"),
    "rslora": (change(use_rslora=True), "use_rslora True is not supported"),
    "prefix": (change(peft_type="PREFIX_TUNING"), "peft_type 'PREFIX_TUNING'"),
    "whole-modules": (change(modules_to_save=["lm_head"]), "modules_to_save"),
    "rank-text": (change(r="8"), "expected r, lora_alpha"),
    "rank-other": (change(r=4), "belongs to another model"),
    "alpha": (change(lora_alpha=-1), "expected r, lora_alpha"),
    "targets": (change(target_modules=["q_proj"]), "names q_proj, and"),
    "pickle": (pickled, "is a pickle"),
    "half": (lambda p: (p / WEIGHTS).write_bytes((p / WEIGHTS).read_bytes()[:-9]), "expected "),
    "nan": (tensors(lambda s: s[FIRST].fill_(float("nan"))), "no finite numbers"),
    "one-of-two": (tensors(lambda s: s.pop(FIRST)), "belongs to another model"),
    "wide": (tensors(lambda s: s.update({FIRST: torch.zeros(2, 99)})), "(2, 99)"),
    "more": (tensors(lambda s: s.update({"x.weight": torch.zeros(1)})), "holds x.weight"),
    "deep": (
        tensors(
            lambda s: s.update({n.replace(".0.", ".9."): s.pop(n) for n in [*s] if ".0.self_attn.q" in n})
        ),
        "there is no such layer",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_adapter_is_refused_and_leaves_nothing(name, store, base, adapter, capsys):
    damage, message = DAMAGES[name]
    before = sorted((store / "cas" / "train").glob("*"))
    damage(adapter)
    code, out, said = run(store, capsys, str(adapter), "--base", base)
    assert code == 65 and message in said and not out, said
    assert "Traceback" not in said
    assert sorted((store / "cas" / "train").glob("*")) == before


def test_a_base_must_be_named_and_be_a_model(store, base, adapter, folder, capsys):
    assert run(store, capsys, str(adapter))[0] == 64
    tokenizer = f"tokenizer/{opened(store, base).part('tokenizer').manifest.key}"
    assert run(store, capsys, str(adapter), "--base", tokenizer)[0] == 65
    assert run(store, capsys, str(adapter), "--base", "train/" + "0" * 64)[0] == 65
    assert run(store, capsys, str(folder), "--base", base)[0] == 64


def test_an_adapter_of_pefts_own_needs_no_digest(store, base, capsys, folder, tmp_path):
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, target_modules=["q_proj", "up_proj"]))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    adapted.save_pretrained(tmp_path / "theirs")
    code, name, said = run(store, capsys, str(tmp_path / "theirs"), "--base", base)
    assert code == 0 and "does not say which model" in said, said
    ids = torch.randint(0, 400, (2, 20))
    made = load(opened(store, name).path("config.json").parent).model
    with torch.no_grad():
        torch.testing.assert_close(made(ids), adapted.eval()(ids).logits, rtol=0, atol=1e-4)
