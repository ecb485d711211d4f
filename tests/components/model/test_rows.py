"""Rows without padding have the states and the bits of packed ones that are masked."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from yanmo.model import scoring as module
from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.rows import Rows
from yanmo.model.scoring import token_bits
from yanmo.model.windows import plan_with_heads

SHAPES = [(2, 1), (4, 2), (3, 3)]


def drawn(heads=(4, 2), vocabulary=600):
    torch.manual_seed(3)
    config = DecoderConfig(
        vocab_size=vocabulary,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        head_dim=8,
        intermediate_size=40,
        max_position_embeddings=12,
    )
    model = Decoder(config).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.3)
    return model


def masked(model):
    """The model on the path that the others are tested against."""
    found = copy.copy(model)
    found.attention = "masked"
    return found


@torch.no_grad()
@pytest.mark.parametrize("heads", SHAPES)
def test_hidden_states_are_the_decoders_whatever_heads_share(heads):
    model = drawn(heads)
    ids = torch.randint(0, 600, (5, 12))
    wanted = torch.rand(5, 12) < 0.5
    expected = model.hidden(ids, torch.zeros_like(ids))
    for chosen in (wanted, torch.ones_like(wanted)):
        found = model.read(ids.flatten(), Rows([12] * 5), chosen.flatten())
        torch.testing.assert_close(found, expected[chosen], atol=2e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("lengths", [[1], [1, 1, 3, 3, 3, 12], [12, 5, 12, 1, 5]])
def test_rows_of_any_lengths_do_not_see_each_other(lengths):
    model = drawn()
    rows = [torch.randint(0, 600, (n,)) for n in lengths]
    ids, wanted = torch.cat(rows), torch.rand(sum(lengths)) < 0.7
    expected = torch.cat([model.hidden(row[None], torch.zeros_like(row)[None])[0] for row in rows])
    found = model.read(ids, Rows(lengths), wanted)
    torch.testing.assert_close(found, expected[wanted], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("size", [1.0, 30.0, 3000.0])
@pytest.mark.parametrize("columns", [64, 512, 4096])
def test_nats_are_those_of_the_whole_table_however_large_the_logits_and_the_pieces(
    monkeypatch, size, columns
):
    monkeypatch.setattr(module, "_FEWEST_COLUMNS", columns)
    monkeypatch.setattr(module, "_LOGITS", 1)
    model, hidden, targets = drawn(), size * torch.randn(33, 24), torch.randint(0, 600, (33,))
    logits = hidden.double() @ model.lm_head.weight.double().T
    expected = F.cross_entropy(logits, targets, reduction="none")
    # A logit of 3,000 times 24 has 1e-3 of rounding in fp32, whoever computes it.
    found = module._nats_in_pieces(hidden, model.lm_head.weight, targets)
    torch.testing.assert_close(found, expected.detach(), atol=2e-6 * size, rtol=2e-6)


def test_a_model_that_diverged_gives_no_number():
    model = drawn()
    hidden = torch.tensor([[float("nan")] * 24, [float("inf")] * 24])
    found = module._nats_in_pieces(hidden, model.lm_head.weight, torch.tensor([1, 2]))
    assert not found.isfinite().any()


def texts():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 600, n) for n in (2, 9, 13, 1, 14, 40, 40)]


def test_bits_are_the_decoders_and_what_does_not_count_has_none():
    model, rng = drawn(), np.random.default_rng(1)
    plain = token_bits(masked(model), texts())
    for found, expected in zip(token_bits(model, texts(), threads=2), plain, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)
    counted = [rng.random(len(bits)) < 0.3 for bits in plain]
    counted[5][:] = False
    for each in (model, masked(model)):
        some = token_bits(each, texts(), counted=counted)
        for found, expected, wanted in zip(some, plain, counted, strict=True):
            np.testing.assert_allclose(found, np.where(wanted, expected, 0.0), atol=2e-5)


def test_windows_in_which_nothing_counts_are_not_read():
    model, read = drawn(), []
    model.model.embed_tokens.register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
    counted = [np.arange(len(t) - 1) >= len(t) - 4 for t in texts()]
    token_bits(model, texts()[5:], counted=counted[5:])
    assert sum(read) == 2 * 9  # the last window of each, of five


def questions():
    """Answers of several lengths to questions of 9 and 8 tokens, one of them alone, and a long document."""
    rng = np.random.default_rng(2)
    first, second, third = (rng.integers(0, 600, n) for n in (10, 9, 10))
    heads = [first, second, first, third, second, first, second]
    reads = [
        np.concatenate([head, rng.integers(0, 600, n)])
        for head, n in zip(heads, (3, 3, 1, 2, 4, 3, 1), strict=True)
    ]
    counted = [np.arange(1, len(read)) >= len(head) for read, head in zip(reads, heads, strict=True)]
    return [*reads, rng.integers(0, 600, 30)], [*counted, np.arange(1, 30) > 20]


@pytest.mark.parametrize("batch_tokens", [1, 16, 26, 1024])
def test_answers_to_one_question_have_the_bits_of_each_read_alone(batch_tokens):
    model, (reads, counted) = drawn(), questions()
    found = token_bits(model, reads, counted=counted, batch_tokens=batch_tokens)
    for i, bits in enumerate(found):
        expected = token_bits(masked(model), [reads[i]], counted=[counted[i]])[0]
        np.testing.assert_allclose(bits, expected, atol=2e-5)


def test_a_question_is_read_once_in_a_batch():
    reads, counted = questions()
    once = plan_with_heads(reads, 12, counted)[-1]
    assert [(w.document, w.head) for w in once] == [(6, 8), (1, 8), (4, 8), (2, 9), (0, 9), (5, 9)]
    assert [len(batch) for batch in plan_with_heads(reads, 12, counted, 0, 13)[-4:]] == [2, 1, 2, 1]
    model, read = drawn(), []
    model.model.embed_tokens.register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
    token_bits(model, reads, counted=counted)
    assert read[-1] == 8 + (1 + 3 + 4) + 9 + (1 + 3 + 3)
