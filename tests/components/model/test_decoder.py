"""The decoder: packed rows equal separate ones; gradients too."""

import dataclasses

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from yanmo.model.decoder import Decoder, DecoderConfig, Lora
from yanmo.model.lora import adapt
from yanmo.model.rows import Rows

SHAPE = DecoderConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=48,
    max_position_embeddings=16,
)


def tiny(**changes) -> Decoder:
    torch.manual_seed(7)
    model = Decoder(dataclasses.replace(SHAPE, **changes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_a_packed_row_gives_what_its_documents_give_apart():
    model = tiny()
    texts = [torch.randint(0, 50, (1, n)) for n in (5, 2, 6)]
    row = torch.cat(texts, 1)
    segments = torch.repeat_interleave(torch.arange(3), torch.tensor([5, 2, 6]))[None]
    packed = model(row, segments)
    apart = torch.cat([model(text) for text in texts], 1)
    assert (packed - apart).abs().max() < 1e-5


def test_a_later_token_changes_nothing_before_it():
    model = tiny()
    ids = torch.randint(0, 50, (1, 9))
    other = ids.clone()
    other[0, 6] = (other[0, 6] + 1) % 50
    difference = (model(ids) - model(other)).abs().amax(-1)[0]
    assert difference[:6].max() == 0
    assert difference[6:].min() > 0


def test_an_initialized_model_predicts_by_its_head_alone():
    model = Decoder(SHAPE)
    model.initialize(torch.Generator().manual_seed(0), embedding_std=1.0)
    ids = torch.randint(0, 50, (1, 4))
    x = model.model.embed_tokens(ids)
    assert torch.equal(model(ids), model.lm_head(model.model.norm(x)))


def test_a_tied_head_is_the_embedding():
    model = tiny(tie_word_embeddings=True)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert sum(1 for name, _ in model.named_parameters() if "lm_head" in name) == 0


@pytest.mark.parametrize(
    ("change", "word"), [({"num_key_value_heads": 3}, "multiple"), ({"head_dim": 15}, "even")]
)
def test_an_impossible_shape_is_refused(change, word):
    with pytest.raises(ValueError, match=word):
        dataclasses.replace(SHAPE, **change)


class Masks(TorchFunctionMode):
    """Notes the shapes of the masks that attention gets."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.scaled_dot_product_attention:
            mask = kwargs["attn_mask"]
            assert kwargs["is_causal"] == (mask is None)
            self.shapes.add(None if mask is None else tuple(mask.shape))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("attention", ["auto", "masked"])
def test_on_cuda_rows_of_one_document_need_no_mask(attention):
    # Nothing is computed: torch follows shapes and devices, and no GPU is needed.
    with FakeTensorMode(), torch.device("cuda"):
        model, ids = Decoder(SHAPE), torch.zeros(2, 24, dtype=torch.long)
        model.attention = attention
        found = []
        for segments in (None, torch.zeros_like(ids)):
            with Masks() as masks:
                assert model.hidden(ids, segments).shape == (2, 24, 32)
            found.append(masks.shapes)
    assert found == [{None}, {(2, 1, 24, 24)}], "that rows hold one document each has to be said"


@pytest.mark.parametrize("attention", ["auto", "masked", "flash"])
def test_on_a_cpu_rows_of_one_document_give_the_bits_that_segments_give(attention):
    model, ids = tiny(), torch.randint(0, 50, (3, 9))
    model.attention = attention
    assert torch.equal(model.hidden(ids, None), model.hidden(ids, torch.zeros_like(ids)))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "llama"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_fused_decoder_has_the_states_of_the_plain_one_and_holds_no_weight_twice(kind, kv_heads):
    model = tiny(model_type=kind, num_key_value_heads=kv_heads)
    ids, segments = torch.randint(0, 50, (3, 12)), torch.tensor([[0] * 5 + [1] * 7] * 3)
    plain, before = model.hidden(ids, segments), {k: v.clone() for k, v in model.state_dict().items()}
    model.fuse()
    model.fuse()  # a writer of a model that was loaded for scoring does so again
    torch.testing.assert_close(model.hidden(ids, segments), plain, rtol=1e-5, atol=1e-5)
    layer = model.model.layers[0]
    joined = {"self_attn": ("qkv", "q_proj", "k_proj", "v_proj"), "mlp": ("gate_up", "gate_proj", "up_proj")}
    for part, (whole, *names) in joined.items():
        held = getattr(layer, part).get_buffer(whole).untyped_storage().data_ptr()
        for name in names:
            assert layer.get_submodule(f"{part}.{name}").weight.untyped_storage().data_ptr() == held
    after = model.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[k], before[k]) for k in before)


def test_a_fused_decoder_is_not_trained():
    model = tiny()
    model.fuse()
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    with pytest.raises(RuntimeError, match="does not require grad"):
        model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    adapted = tiny()
    adapt(adapted, Lora(rank=2, alpha=2.0, dropout=0.0, targets=("q_proj",)), seed=0)
    with pytest.raises(AssertionError, match="adapter"):
        adapted.fuse()


@pytest.mark.parametrize("recompute", [False, True])
def test_the_states_of_some_positions_are_those_of_all(recompute):
    model = tiny()
    model.recompute = recompute
    ids, wanted = torch.randint(0, 50, (12,)), torch.arange(12) % 3 == 0
    layout = Rows([5, 7])
    torch.testing.assert_close(model.read(ids, layout, wanted), model.read(ids, layout)[wanted])
