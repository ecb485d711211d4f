"""8-bit integers: as near as they can be, as compressed-tensors has them, and their loss in the card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from yanmo.model.hf_export import load
from yanmo.tools.export.command import main
from yanmo.tools.export.int8 import quantized, round_layers

if TYPE_CHECKING:
    from conftest import Lab


def export(lab: Lab, *argv: object) -> int:
    return main([*map(str, argv), "--store", lab.uri])


def test_no_weight_is_further_off_than_half_a_step() -> None:
    weight = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))
    weight[3] = 0.0
    weight[4] *= 1e6
    integers, scale = quantized(weight)
    assert integers.dtype == torch.int8 and scale.shape == (40, 1)
    assert ((integers * scale - weight).abs() <= scale / 2 * 1.0001).all()
    assert (integers[4].abs().max(), integers[3].abs().max()) == (127, 0)


def test_the_layers_are_integers_and_the_rest_is_as_it_was(lab: Lab, tmp_path: Path):
    out = tmp_path / "out"
    assert export(lab, "main", out, "--int8", "--dtype", "bf16") == 0
    found = load_file(out / "model.safetensors")
    layers = [name for name in found if name.endswith("_proj.weight")]
    assert len(layers) == 14 and all(found[name].dtype == torch.int8 for name in layers)
    assert all(found[f"{name}_scale"].dtype == torch.bfloat16 for name in layers)
    others = [n for n in found if n not in layers and not n.endswith("_scale")]
    assert others and all(found[name].dtype == torch.bfloat16 for name in others)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"


def test_transformers_computes_what_was_measured(lab: Lab, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    out = tmp_path / "out"
    assert export(lab, "main", out, "--int8") == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    ours = load(lab.folder).model
    ids = torch.randint(0, ours.config.vocab_size, (2, 30))
    with torch.no_grad():
        before, wanted = ours(ids), round_layers(ours, torch.float32)(ids)
        found = theirs(ids).logits
    lost = (wanted - before).abs().mean()
    assert lost > 0 and (found - wanted).abs().mean() < lost / 20


def test_the_card_has_the_loss_on_the_evaluation_set(lab: Lab, tmp_path: Path):
    lab.evaluate(7.0)
    assert export(lab, "main", tmp_path / "out", "--int8") == 0
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "figures of the weights in fp32, before this export" in text and "model-index" not in text
    assert "on 12 texts of" in text and f"{lab.held}, split test" in text
    rows = [line for line in text.splitlines() if line.startswith(("| 诗 |", "| 词 |", "| mean |"))]
    assert len(rows) == 6
    for row in rows[3:]:
        before, after, difference = map(float, row.split("|")[2:5])
        assert before > 0 and after - before == pytest.approx(difference, abs=2e-4)


def test_without_a_set_or_when_not_asked_the_card_says_that_nothing_was_measured(lab: Lab, tmp_path: Path):
    assert export(lab, "main", tmp_path / "a", "--int8", "--measure-characters", "0") == 0
    assert export(lab, "main", tmp_path / "model") == 0
    assert export(lab, tmp_path / "model", tmp_path / "b", "--int8") == 0
    for name in "ab":
        assert "was not measured" in (tmp_path / name / "README.md").read_text(encoding="utf-8")
