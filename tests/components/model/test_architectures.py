"""Models of every kind that is computed here have transformers' own logits, wherever they are computed."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from yanmo.common.errors import DataError
from yanmo.model.generation.writer import Writer
from yanmo.model.hf_export import Symbols, load, load_frozen, save
from yanmo.model.scoring import token_bits
from yanmo.model.weights_check import INDEX

transformers = pytest.importorskip("transformers")
KINDS = ["qwen3", "qwen2", "llama"]
SIZE = 200


def theirs(kind: str, folder: Path, *, tied: bool = False, dtype=torch.float32, **changes):
    """A model of transformers' with drawn weights, norms and biases too, saved in several files."""
    torch.manual_seed(5)
    shape = {"vocab_size": SIZE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
    shape |= {"head_dim": 16} if kind == "qwen3" else {}
    shape |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "rms_norm_eps": 1e-5}
    shape |= {"tie_word_embeddings": tied, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    names = {"qwen3": "Qwen3", "qwen2": "Qwen2", "llama": "Llama"}
    config = getattr(transformers, f"{names[kind]}Config")(**shape | changes)
    model = getattr(transformers, f"{names[kind]}ForCausalLM")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.3)
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    Tokenizer(models.BPE({"a": 0}, [])).save(str(folder / "tokenizer.json"))
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return again.eval()


def some_ids() -> torch.Tensor:
    return torch.randint(0, SIZE, (3, 40), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind, tied, dtype, tmp_path):
    expected = theirs(kind, tmp_path, tied=tied, dtype=dtype)(some_ids(), use_cache=False).logits
    ours = load(tmp_path).model(some_ids())
    assert ours.abs().max() > 3, "weights so small would hide a wrong sum"
    torch.testing.assert_close(ours, expected, rtol=0, atol=2e-4)


@torch.no_grad()
@pytest.mark.parametrize("changes", [{"num_key_value_heads": 4}, {"num_key_value_heads": 1}])
@pytest.mark.parametrize("kind", KINDS)
def test_heads_may_be_shared_by_any_number(kind, changes, tmp_path):
    expected = theirs(kind, tmp_path, **changes)(some_ids(), use_cache=False).logits
    torch.testing.assert_close(load(tmp_path).model(some_ids()), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_again_is_the_same_model_to_transformers(kind, tmp_path):
    expected = theirs(kind, tmp_path / "theirs")
    loaded = load(tmp_path / "theirs")
    save(loaded.model, Symbols(bos=0, eos=1, pad=2), tmp_path / "ours")
    again, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert type(again) is type(expected) and not report["missing_keys"] and not report["unexpected_keys"]
    assert load(tmp_path / "ours").model.config == loaded.model.config
    for name, value in expected.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    with torch.no_grad():
        torch.testing.assert_close(again(some_ids()).logits, expected(some_ids()).logits, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_reading_fast_and_writing_step_by_step_are_the_same_model(kind, tmp_path):
    theirs(kind, tmp_path)
    model = load(tmp_path).model
    texts = [np.array(row, np.int64) for row in some_ids().tolist()]
    masked = copy.copy(model)
    masked.attention = "masked"
    for slow, fast in zip(token_bits(masked, texts), token_bits(model, texts), strict=True):
        np.testing.assert_allclose(fast, slow, rtol=0, atol=2e-4)
    writer, ids = Writer(model), some_ids()
    kept = writer.room(len(ids))
    writer.read(kept, range(3), ids[:, :30].tolist())
    for at in range(30, 40):
        found = writer.read(kept, range(3), ids[:, at : at + 1].tolist())
        torch.testing.assert_close(found, model(ids[:, : at + 1])[:, -1], rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_type 'llama3'"),
        ("llama", {"attention_bias": True}, "attention_bias is not supported"),
        ("llama", {"hidden_size": 40}, "lm_head.weight has shape"),
        ("qwen2", {"hidden_size": 33}, "lacks head_dim"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16}, "use_sliding_window"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("qwen2", {"num_attention_heads": 8}, "has shape"),
        ("qwen2", {"head_dim": 32}, "has shape"),
        ("qwen2", {"tie_word_embeddings": "yes"}, "tie_word_embeddings 'yes'"),
        ("qwen2", {"model_type": "llama"}, "bias, which no such model has"),
        ("llama", {"model_type": "qwen2"}, "no file holds model.layers.0.self_attn.k_proj.bias"),
    ],
)
def test_a_config_that_lies_is_refused_with_what(kind, change, message, tmp_path):
    theirs(kind, tmp_path)
    path = tmp_path / "config.json"
    value = json.loads(path.read_text(encoding="utf-8")) | change
    if "hidden_size" in change:  # transformers 5 writes what follows from it
        value.pop("head_dim", None)
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        load(tmp_path)
    assert message in str(refused.value) and "config.json" in str(refused.value)


def test_what_a_config_leaves_out_is_what_transformers_takes(tmp_path):
    """As the files of Qwen2.5 and of the first Llamas are: no head width, no key/value heads."""
    expected = theirs("llama", tmp_path, num_key_value_heads=4)
    path = tmp_path / "config.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    for name in ("head_dim", "num_key_value_heads", "tie_word_embeddings", "rope_scaling"):
        value.pop(name, None)
    value["rope_theta"] = value.pop("rope_parameters")["rope_theta"]
    path.write_text(json.dumps(value), encoding="utf-8")
    with torch.no_grad():
        ours, wanted = load(tmp_path).model(some_ids()), expected(some_ids()).logits
    torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-4)


LEFT_OUT = [
    "tie_word_embeddings",
    "max_position_embeddings",
    "rms_norm_eps",
    "head_dim",
    "num_key_value_heads",
]


@pytest.fixture(scope="module")
def of_each_kind(tmp_path_factory):
    """Kind, whether its head is its embedding -> a folder of transformers', and the logits of its model."""
    found = {}
    for kind in KINDS:
        for tied in (False, True):
            folder = tmp_path_factory.mktemp(f"{kind}-{tied}")
            usual = {"rms_norm_eps": 1e-6, "num_key_value_heads": 4}
            with torch.no_grad():
                found[kind, tied] = folder, theirs(kind, folder, tied=tied, **usual)(some_ids()).logits
    return found


@torch.no_grad()
@given(
    kind=st.sampled_from(KINDS),
    tied=st.booleans(),
    left_out=st.sets(st.sampled_from(LEFT_OUT)),
    old=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_config_that_leaves_something_out_is_the_model_that_its_weights_are(
    of_each_kind, tmp_path_factory, kind, tied, left_out, old
):
    """Whatever older versions and other tools do not write, and frequencies that old ones do."""
    if kind == "qwen3":
        left_out -= {"head_dim", "num_key_value_heads"}  # its defaults are numbers of the large models
    source, expected = of_each_kind[kind, tied]
    folder = tmp_path_factory.mktemp("without")
    value = json.loads((source / "config.json").read_text(encoding="utf-8"))
    value = {name: of_it for name, of_it in value.items() if name not in left_out}
    index = json.loads((source / INDEX).read_text(encoding="utf-8"))
    for path in source.glob("*.safetensors"):
        tensors = load_file(path)
        if old:
            layers = {name.split(".")[2] for name in tensors if ".q_proj.weight" in name}
            of_layers = {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq" for layer in layers}
            tensors |= {name: torch.ones(8) for name in of_layers}
            index["weight_map"] |= dict.fromkeys(of_layers, path.name)
            value |= {"pad_token_id": -1}
        save_file(tensors, folder / path.name)
    for name, of_it in ((INDEX, index), ("config.json", value)):
        (folder / name).write_text(json.dumps(of_it), encoding="utf-8")
    torch.testing.assert_close(load(folder).model(some_ids()), expected, rtol=0, atol=2e-4)
    again = load_frozen(folder, torch.float32)
    torch.testing.assert_close(again(some_ids()), expected, rtol=0, atol=2e-4)
