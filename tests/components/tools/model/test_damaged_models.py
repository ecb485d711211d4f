"""Every damage done to a good small model is refused where it enters: 65, the file's name, nothing committed.

Each damage is applied to a fresh copy of a folder that imports well, so that nothing else can be the reason.
"""

from __future__ import annotations

import json
import pickle
import random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from yanmo.common.errors import DataError
from yanmo.model.hf_export import load
from yanmo.model.weights_check import check_weights


def config_with(**changes):
    def damage(place):
        path = place / "config.json"
        value = json.loads(path.read_text(encoding="utf-8"))
        value |= {k: v for k, v in changes.items() if v is not ...}
        path.write_text(json.dumps({k: v for k, v in value.items() if changes.get(k) is not ...}))

    return damage


def text_of(name, body):
    return lambda place: (place / name).write_text(body, encoding="utf-8")


def cut(name, share):
    def damage(place):
        path = place / name if (place / name).exists() else sorted(place.glob(name))[0]
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])

    return damage


def tensors(change, number=0):
    """Rewrite the tensors of one weights file."""

    def damage(place):
        path = sorted(place.glob("*.safetensors"))[number]
        state = load_file(path)
        change(state)
        save_file(state, path, metadata={"format": "pt"})

    return damage


def poison(value, dtype=torch.float32):
    def change(state):
        name = max(state, key=lambda n: state[n].numel())
        state[name] = state[name].to(dtype)
        state[name].view(-1)[state[name].numel() // 2] = value

    return change


def typed(dtype):
    def change(state):
        state.update({n: t.to(dtype) for n, t in state.items()})

    return change


def dropped(state):
    state.pop(sorted(state)[0])


def doubled(place):
    first, second = sorted(place.glob("*.safetensors"))[:2]
    state = load_file(second)
    name = sorted(load_file(first))[0]
    save_file(state | {name: load_file(first)[name]}, second, metadata={"format": "pt"})


def pickled(place):
    for path in place.glob("*.safetensors*"):
        path.unlink()
    (place / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}))


def without(pattern):
    return lambda place: [path.unlink() for path in sorted(place.glob(pattern))[:1]]


def tokenizer_with(**changes):
    def damage(place):
        path = place / "tokenizer.json"
        value = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(value | changes, ensure_ascii=False), encoding="utf-8")

    return damage


def larger_tokenizer(place):
    path = place / "tokenizer.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    value["model"]["vocab"] += [[f"多{i}", -9.0] for i in range(200)]
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


REPLACE = {"type": "Replace", "pattern": {"String": "也"}, "content": ""}
DAMAGES = {
    "config-list": (text_of("config.json", "[]"), "config.json", "found an array"),
    "config-deep": (text_of("config.json", "[" * 200_000), "config.json", "it is not JSON"),
    "config-half": (cut("config.json", 0.5), "config.json", "it is not JSON"),
    "config-no-object": (
        text_of("config.json", "{}"),
        "config.json",
        "model_type 'qwen3', 'qwen2' or 'llama', found None",
    ),
    "config-gpt2": (config_with(model_type="gpt2"), "config.json", "found 'gpt2'"),
    "config-qwen2": (config_with(model_type="qwen2"), "config.json", "self_attn.k_norm.weight, which no"),
    "config-bias": (config_with(attention_bias=True), "config.json", "attention_bias is not supported"),
    "config-mlp-bias": (config_with(mlp_bias=True), "config.json", "mlp_bias is not supported"),
    "config-window": (config_with(use_sliding_window=True), "config.json", "use_sliding_window"),
    "config-partial": (config_with(partial_rotary_factor=0.5), "config.json", "partial_rotary_factor 0.5"),
    "config-two-thetas": (
        config_with(rope_theta=1e6, rope_parameters={"rope_theta": 1e4}),
        "config.json",
        "rope_theta 1000000.0, and 10000.0 in rope_parameters",
    ),
    "config-rope-layers": (
        config_with(rope_parameters={"full_attention": {"rope_type": "yarn", "factor": 2.0}}),
        "config.json",
        "rope_parameters of 'full_attention' alone",
    ),
    "config-rope-two": (
        config_with(rope_scaling={"type": "default"}, rope_parameters={"rope_type": "yarn", "factor": 4.0}),
        "config.json",
        "rope_type 'yarn' of rope_parameters",
    ),
    "config-lacks": (config_with(hidden_size=...), "config.json", "lacks hidden_size"),
    "config-minus": (config_with(vocab_size=-1), "config.json", "vocab_size -1"),
    "config-huge": (config_with(num_hidden_layers=10**12), "config.json", "num_hidden_layers 1000000000000"),
    "config-heads": (config_with(num_attention_heads=3, num_key_value_heads=2), "config.json", "multiple"),
    "config-true": (config_with(num_hidden_layers=True), "config.json", "num_hidden_layers True"),
    "config-odd": (config_with(head_dim=15), "config.json", "15"),
    "config-eps": (config_with(rms_norm_eps="small"), "config.json", "rms_norm_eps 'small'"),
    "config-theta": (config_with(rope_theta=-1, rope_parameters=None), "config.json", "rope_theta -1"),
    "config-bos": (config_with(bos_token_id=4000), "config.json", "bos_token_id 4000"),
    "config-eos": (config_with(eos_token_id=["x"]), "config.json", "eos_token_id"),
    "config-quantized": (config_with(quantization_config={"bits": 4}), "config.json", "quantization_config"),
    "config-layer-types": (config_with(layer_types=["sliding_attention"] * 2), "config.json", "layer_types"),
    "shape": (config_with(hidden_size=64), ".safetensors", "expected ["),
    "more-layers": (config_with(num_hidden_layers=3), "config.json", "no file holds model.layers.2."),
    "fewer-layers": (config_with(num_hidden_layers=1), ".safetensors", "which no such model has"),
    "nan": (tensors(poison(float("nan"))), ".safetensors", "1 of "),
    "nan-bf16": (tensors(poison(float("nan"), torch.bfloat16)), ".safetensors", "no finite numbers"),
    "integers": (tensors(typed(torch.int64)), ".safetensors", "found I64"),
    "dropped": (tensors(dropped), ".safetensors.index.json", "no file holds"),
    "doubled": (doubled, ".safetensors", " does too; keep one"),
    "truncated": (cut("*.safetensors", 0.5), ".safetensors", "file not fully covered"),
    "missing-part": (without("*.safetensors"), "index.json", "not there; copy the model again"),
    "index-elsewhere": (
        text_of("model.safetensors.index.json", '{"weight_map": {"a": "../b.safetensors"}}'),
        "index.json",
        "in the same folder",
    ),
    "pickles": (pickled, "pytorch_model.bin", "safe_serialization=True"),
    "no-weights": (lambda p: [x.unlink() for x in p.glob("*.safetensors*")], "hf", "no model.safetensors"),
    "genres-uneven": (text_of("genres.json", '{"genres": ["诗"], "tag_ids": []}'), "genres.json", "as many"),
    "genres-far": (
        text_of("genres.json", '{"genres": ["诗"], "tag_ids": [9999]}'),
        "genres.json",
        "below 400",
    ),
    "tokenizer-half": (cut("tokenizer.json", 0.5), "tokenizer.json", "not a tokenizer"),
    "tokenizer-larger": (larger_tokenizer, "tokenizer.json", "do not belong together"),
    "tokenizer-loses": (tokenizer_with(normalizer=REPLACE), "tokenizer.json", "expected '也' (U+4E5F)"),
    "tokenizer-strips": (
        tokenizer_with(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
        "tokenizer.json",
        "loses text",
    ),
    "special-tokens": (text_of("special_tokens_map.json", "7"), "special_tokens_map.json", "found a number"),
    "no-tokenizer": (without("tokenizer.json"), "hf", "save_pretrained"),
}
USAGE = {"no-tokenizer"}


def run(store, folder, capsys):
    from yanmo.tools.command_group import main
    from yanmo.tools.model.command import TOOL

    code = main(TOOL, ["import", str(folder), "--store", str(store)])
    return code, capsys.readouterr()


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_model_is_refused_by_name_and_leaves_nothing(name, store, folder, capsys):
    damage, file, message = DAMAGES[name]
    before = sorted((store / "cas" / "train").glob("*"))
    damage(folder)
    code, shown = run(store, folder, capsys)
    assert code == (64 if name in USAGE else 65), shown.err
    assert file in shown.err and message in shown.err and str(folder) in shown.err, shown.err
    assert "Traceback" not in shown.err and not shown.out
    assert sorted((store / "cas" / "train").glob("*")) == before


def test_what_is_no_damage_is_taken(store, folder, capsys, tmp_path):
    """bf16, one file without an index, a pickle beside the safetensors, a list of ends."""
    assert run(store, folder, capsys)[0] == 0
    state = {}
    for path in sorted(folder.glob("*.safetensors")):
        state |= load_file(path)
        path.unlink()
    (folder / "model.safetensors.index.json").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    save_file({n: t.bfloat16() for n, t in state.items()}, folder / "part.safetensors")
    config_with(eos_token_id=[1, 2])(folder)
    assert run(store, folder, capsys)[0] == 0
    for name, tensor in load(folder).model.state_dict().items():
        assert torch.equal(tensor, state[name].bfloat16().float()), name


def test_a_file_beside_the_model_is_not_taken_for_a_part_of_it(store, folder, capsys):
    save_file({"lora": torch.zeros(2)}, folder / "adapter_model.safetensors")
    assert run(store, folder, capsys)[0] == 0


def test_a_head_that_is_tied_is_the_embedding_whatever_the_file_says(folder, tmp_path):
    state = {}
    for path in sorted(folder.glob("*.safetensors")):
        state |= load_file(path)
        path.unlink()
    (folder / "model.safetensors.index.json").unlink()
    config_with(tie_word_embeddings=True)(folder)
    save_file(state, folder / "model.safetensors")
    model = load(folder).model
    assert torch.equal(model.lm_head.weight, state["model.embed_tokens.weight"])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_weight_that_is_not_finite_is_found_and_no_other(tmp_path_factory, data):
    """Judged by numpy, over types, shapes and places."""
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]))
    shape = data.draw(st.lists(st.integers(0, 5), max_size=3))
    values = st.sampled_from([0.0, -0.0, 1.0, 65504.0, -3e4, float("nan"), float("inf"), float("-inf")])
    number = int(np.prod(shape))
    tensor = torch.tensor(data.draw(st.lists(values, min_size=number, max_size=number)), dtype=dtype)
    place = tmp_path_factory.mktemp("weights")
    save_file({"x": torch.ones(1), "t": tensor.reshape(shape)}, place / "model.safetensors")
    wrong = int((~torch.isfinite(tensor)).sum())
    if wrong:
        with pytest.raises(DataError, match=rf"model\.safetensors: t: {wrong} of {number} weights"):
            check_weights(place)
    else:
        check_weights(place)


@pytest.fixture
def one_file(folder):
    """The same model in one file, which `load` reads."""
    parts = sorted(folder.glob("*.safetensors"))
    state = {name: value for part in parts for name, value in load_file(part).items()}
    for part in (*parts, folder / "model.safetensors.index.json"):
        part.unlink()
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    assert {n: tuple(t.shape) for n, t in load(folder).model.state_dict().items()} == {
        n: tuple(t.shape) for n, t in state.items()
    }
    return folder


def is_refused(place):
    """Whether the model is refused, by a DataError that names the file; by the first look, if by anything."""
    path = place / "model.safetensors"
    try:
        load(place)
    except DataError as error:
        assert str(path) in str(error) or "no file holds" in str(error)
        return True
    load_file(path)  # what was accepted is what the library of safetensors accepts
    return False


def test_a_file_that_is_cut_or_changed_anywhere_is_refused_or_reads_as_it_says(one_file):
    """Never a traceback: 300 random cuts and changed bytes of headers."""
    draw = random.Random(7)
    source = (one_file / "model.safetensors").read_bytes()
    header = 8 + int.from_bytes(source[:8], "little")
    refused = {"cut": 0, "changed": 0}
    for i in range(300):
        body, how = bytearray(source), "changed" if i % 3 else "cut"
        if how == "cut":
            body = body[: draw.randrange(len(body))]
        else:
            body[draw.randrange(header)] = draw.randrange(256)
        (one_file / "model.safetensors").write_bytes(bytes(body))
        refused[how] += is_refused(one_file)
    assert refused["cut"] == 100
    assert 150 < refused["changed"] < 200, "few bytes of a header may be changed: those of its metadata"


ODD = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-200, 200),
    st.booleans(),
    st.none(),
    st.floats(),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_config_that_says_something_else_is_refused_by_name_or_loads(one_file, data):
    path = one_file / "config.json"
    config = json.loads(_WHOLE.setdefault(str(path), path.read_bytes()))
    more = (
        "rope_scaling",
        "rope_parameters",
        "layer_types",
        "rope_theta",
        "mlp_bias",
        "partial_rotary_factor",
    )
    config[data.draw(st.sampled_from(sorted({*config, *more})))] = data.draw(ODD)
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        load(one_file)
    except DataError as error:
        assert str(one_file) in str(error)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_header_that_says_something_else_is_refused_or_reads_as_it_says(one_file, data):
    path = one_file / "model.safetensors"
    source = _WHOLE.setdefault(str(path), path.read_bytes())
    length = int.from_bytes(source[:8], "little")
    header = json.loads(source[8 : 8 + length])
    names = sorted(header.keys() - {"__metadata__"})
    one, other = (data.draw(st.sampled_from(names)) for _ in range(2))
    kind = data.draw(st.sampled_from(("shape", "offsets", "texts", "dtype", "exchange", "row", "metadata")))
    row, number = header[one], data.draw(st.integers(0, 1))
    if kind == "shape":
        row["shape"][number % len(row["shape"])] = data.draw(ODD)
    elif kind == "offsets":
        row["data_offsets"][number] = data.draw(ODD)
    elif kind == "texts":
        row["shape"] = [str(n) for n in row["shape"]] if number else [float(n) for n in row["shape"]]
    elif kind == "dtype":
        row["dtype"] = data.draw(st.sampled_from(("F16", "F64", "I32", "nothing", None, 7)))
    elif kind == "exchange":
        header[one]["data_offsets"] = header[other]["data_offsets"]
    elif kind == "row":
        header[one] = data.draw(st.one_of(ODD, st.just(sorted(row.items()))))
    else:
        header["__metadata__"] = data.draw(st.one_of(ODD, st.just([1]), st.just({"a": 1})))
    result = json.dumps(header).encode()
    path.write_bytes(len(result).to_bytes(8, "little") + result + source[8 + length :])
    try:
        load_file(path)
    except Exception:
        with pytest.raises(DataError, match=r"model\.safetensors"):  # also where nothing but headers is read
            check_weights(one_file)
        assert is_refused(one_file)
    else:
        is_refused(one_file)


_WHOLE: dict[str, bytes] = {}
"""Path -> the file before it was changed: one folder serves all examples."""
