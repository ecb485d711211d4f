"""The exported folder is a Qwen3 model to transformers, and comes back as it went."""

import json

import pytest
import torch

from yanmo.common.errors import DataError
from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.hf_export import Symbols, load, save

SYMBOLS = Symbols(bos=0, eos=1, pad=2, genres=("诗", "词"), tag_ids=(4, 5))


def random_model(tied: bool) -> Decoder:
    torch.manual_seed(3)
    config = DecoderConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=48,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
    )
    model = Decoder(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("tied", [False, True])
def test_transformers_gives_the_same_logits(tied, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = random_model(tied)
    save(model, SYMBOLS, tmp_path)
    theirs, report = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    ids = torch.randint(0, 60, (3, 20))
    with torch.no_grad():
        expected = theirs.eval()(ids, use_cache=False).logits
        assert (model(ids) - expected).abs().max() < 1e-4
    assert theirs.generation_config.eos_token_id == SYMBOLS.eos


@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_model_loads_with_equal_weights(tied, tmp_path):
    model = random_model(tied)
    names = save(model, SYMBOLS, tmp_path)
    assert names == sorted(p.name for p in tmp_path.iterdir())
    loaded = load(tmp_path)
    assert loaded.symbols == SYMBOLS
    assert loaded.symbols.tag("词") == 5 and loaded.symbols.tag("曲") is None
    assert loaded.model.config == model.config
    ids = torch.randint(0, 60, (2, 9))
    assert torch.equal(loaded.model(ids), model(ids))


def test_a_cut_off_weight_file_is_refused(tmp_path):
    save(random_model(False), SYMBOLS, tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"model\.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize("change", [{"model_type": "llama"}, {"hidden_size": 48}, {"head_dim": None}])
def test_a_config_that_does_not_fit_is_refused(change, tmp_path):
    save(random_model(False), SYMBOLS, tmp_path)
    path = tmp_path / "config.json"
    value = {**json.loads(path.read_text(encoding="utf-8")), **change}
    path.write_text(json.dumps({k: v for k, v in value.items() if v is not None}), encoding="utf-8")
    with pytest.raises(DataError, match=r"config\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type 'yarn'"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e6}}, "rope_type 'linear'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window"),
    ],
)
def test_what_our_decoder_would_compute_otherwise_is_refused(change, word, tmp_path):
    save(random_model(False), SYMBOLS, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=word):
        load(tmp_path)
