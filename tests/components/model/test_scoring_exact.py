"""Scores are probabilities: of a stride, of all texts together, and of one text under two tokenizers."""

import itertools

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.scoring import token_bits
from yanmo.model.windows import plan_batches


def document_bits(model, documents, **how):
    return np.array([bits.sum() for bits in token_bits(model, documents, **how)])


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


def test_stride_one_reads_a_full_context_before_each_token():
    windows = [w for batch in plan_batches([30], 8, 1) for w in batch]
    assert all(w.length == 8 for w in windows)
    assert sorted(w.start for w in windows) == list(range(22))


def test_no_stride_is_half_a_context():
    assert plan_batches([50, 9], 8, 0) == plan_batches([50, 9], 8, 4)


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
        assert document_bits(model, [np.array([0, 5, 6, 7, 1])])[0] == pytest.approx(4 * np.log2(vocabulary))


CHARACTERS = {"<|bos|>": 0, "<|eos|>": 1, "明": 2, "月": 3, "天": 4}
WORDS = {**CHARACTERS, "明月": 5}
SHARES = {"<|eos|>": 0.1, "明": 0.4, "月": 0.2, "天": 0.3}
"""A text is drawn character by character; this is the one distribution that both models below write."""


def table_of_characters():
    table = np.zeros((5, 5))
    for name, share in SHARES.items():
        table[:, CHARACTERS[name]] = share
    return table


def table_of_words():
    """The same texts, where 明 followed by 月 is one token: 明 alone is then never followed by 月."""
    table = np.zeros((6, 6))
    p = SHARES
    table[:, [1, 3, 4]] = p["<|eos|>"], p["月"], p["天"]
    table[:, 5] = p["明"] * p["月"]
    table[:, 2] = p["明"] * (1 - p["月"])
    table[2] /= 1 - p["月"]
    table[2, 3] = 0
    assert np.allclose(table.sum(1), 1)
    return table


def model_of(table):
    """A decoder that gives `table[before, next]`: its residual stream is the token's own unit vector."""
    size = len(table)
    config = DecoderConfig(vocab_size=size, hidden_size=16, max_position_embeddings=8, **SHAPE)
    model = Decoder(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight[:, :size] = torch.eye(size)
        model.model.norm.weight.fill_(0.25)  # the norm makes a unit vector of 16 numbers four long
        logs = np.log(np.maximum(table, 1e-30))
        model.lm_head.weight[:, :size] = torch.from_numpy(logs.T).float()
    return model


def encoded(vocabulary, texts):
    pieces = [(name, -1.5 if len(name) == 2 else -1.0) for name in vocabulary]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    return [np.array([0, *tokenizer.encode(text).ids, 1]) for text in texts]


def test_two_tokenizers_of_one_distribution_give_a_text_the_same_bits():
    texts = ["明月", "天明月明", "月明明天月", "天", "", "明月明月明月明月明月明月明月明月明月"]
    small, large = encoded(CHARACTERS, texts), encoded(WORDS, texts)
    assert [len(ids) for ids in large] != [len(ids) for ids in small]
    expected = [-sum(np.log2(SHARES[c]) for c in [*text, "<|eos|>"]) for text in texts]
    np.testing.assert_allclose(document_bits(model_of(table_of_characters()), small), expected, rtol=1e-5)
    np.testing.assert_allclose(document_bits(model_of(table_of_words()), large), expected, rtol=1e-5)
