"""Scores are probabilities: of a stride, of all texts together, and of one text under two tokenizers."""

import itertools

import numpy as np
import pytest
import torch

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.scoring import token_bits
from yanmo.model.windows import plan_batches

SHAPE = {
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 16,
}


def drawn(vocabulary, context, seed=0):
    torch.manual_seed(seed)
    config = DecoderConfig(vocab_size=vocabulary, hidden_size=16, max_position_embeddings=context, **SHAPE)
    model = Decoder(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


@torch.no_grad()
@pytest.mark.parametrize("stride", range(1, 9))
def test_every_stride_scores_each_token_once_behind_enough_context(stride):
    context, model = 8, drawn(30, 8)
    text = np.random.default_rng(0).integers(0, 30, 37)
    windows = [w for batch in plan_batches([37], context, stride) for w in batch]
    scored = {t: w for w in windows for t in range(w.scored, w.start + w.length + 1)}
    assert sum(w.start + w.length + 1 - w.scored for w in windows) == len(scored) == 36
    found = token_bits(model, [text], stride=stride)[0]
    for t, window in scored.items():
        assert t - window.start >= min(t, context - stride + 1)
        logits = model(torch.tensor([text[window.start : t].tolist()]))[0, -1].double()
        assert found[t - 1] == pytest.approx(
            -torch.log_softmax(logits, -1)[text[t]].item() / np.log(2), abs=1e-5
        )


def test_a_stride_that_would_leave_tokens_out_is_refused():
    with pytest.raises(ValueError, match="expected 1 to 8 tokens"):
        plan_batches([20], 8, 9)


@pytest.mark.parametrize("stride", [0, 1, 3])
def test_the_probabilities_of_all_texts_sum_to_one(stride):
    # Ids 0 to 3, 1 ends a text; texts of up to six tokens are twice as long as the context of three. What is
    # not ended by then is counted by its first six tokens.
    model, eos, longest = drawn(4, 3), 1, 6
    others = [0, 2, 3]
    texts = [[0, *t, eos] for n in range(longest) for t in itertools.product(others, repeat=n)]
    texts += [[0, *t] for t in itertools.product(others, repeat=longest)]
    bits = token_bits(model, [np.array(t) for t in texts], stride=stride, batch_tokens=4096)
    assert sum(2 ** -each.sum() for each in bits) == pytest.approx(1.0, abs=1e-5)


def test_a_uniform_model_charges_the_logarithm_of_its_vocabulary_for_each_token_and_the_end():
    for vocabulary in (20, 300):
        model = drawn(vocabulary, 16)
        torch.nn.init.zeros_(model.lm_head.weight)
        assert token_bits(model, [np.array([0, 5, 6, 7, 1])])[0].sum() == pytest.approx(
            4 * np.log2(vocabulary)
        )
