"""The bigram start: the sparse products equal the dense table's, and the decoder knows the bigrams."""

import numpy as np
import pytest
import torch

from yanmo.model.bigram_start import _LogRatio, count_bigrams, set_bigram_start
from yanmo.model.decoder import Decoder, DecoderConfig

V = 40


def text() -> np.ndarray:
    """A Markov chain in which each token has three likely successors."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, V, (V, 3))
    tokens = [0]
    for _ in range(20000):
        tokens.append(int(table[tokens[-1], rng.integers(3)]) if rng.random() < 0.9 else int(rng.integers(V)))
    return np.array(tokens)


def dense(tokens: np.ndarray) -> np.ndarray:
    """log p(y|x)/p(y) with absolute discounting, by the formula."""
    counts = np.zeros((V, V))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    u = counts.sum(0) + 0.5
    u /= u.sum()
    n = counts.sum(1, keepdims=True)
    left = np.where(n > 0, 0.75 * (counts > 0).sum(1, keepdims=True) / np.maximum(n, 1), 1.0)
    return np.log((np.maximum(counts - 0.75, 0) / np.maximum(n, 1) + left * u) / u)


def test_the_sparse_products_equal_the_dense_ones():
    tokens = text()[:300]  # some tokens never occur
    matrix = _LogRatio(count_bigrams([(tokens[:-1], tokens[1:])], V), V)
    table = torch.from_numpy(dense(tokens)).float()
    x = torch.randn(V, 5)
    assert (matrix.times(x) - table @ x).abs().max() < 1e-4
    assert (matrix.transposed_times(x) - (table * matrix.weight).T @ x).abs().max() < 1e-3


def started(width: int, tokens: np.ndarray) -> Decoder:
    shape = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    config = DecoderConfig(
        vocab_size=V, hidden_size=width, intermediate_size=16, max_position_embeddings=8, **shape
    )
    decoder = Decoder(config)
    generator = torch.Generator().manual_seed(0)
    decoder.initialize(generator, 1.0)
    set_bigram_start(decoder, count_bigrams([(tokens[:-1], tokens[1:])], V), generator, 1.0)
    return decoder


@torch.no_grad()
def bits(decoder: Decoder, tokens: np.ndarray) -> float:
    ids = torch.from_numpy(tokens[:4001].reshape(1, -1))
    segments = torch.arange(4000)[None] // 8
    logits = decoder(ids[:, :-1], segments)[0]
    return torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item() / np.log(2)


def test_a_started_decoder_is_nearly_as_good_as_the_bigrams_themselves():
    tokens = text()
    table = dense(tokens)
    u = np.bincount(tokens[1:], minlength=V) / (len(tokens) - 1)
    best = -np.mean((table + np.log(u))[tokens[:4000], tokens[1:4001]]) / np.log(2)
    unigram = -np.mean(np.log2(u[tokens[1:4001]]))
    found = bits(started(41, tokens), tokens)
    assert unigram - best > 2
    assert found < best + 0.1 * (unigram - best)
    assert bits(started(12, tokens), tokens) < unigram - 0.2


def test_the_same_seed_gives_the_same_start():
    tokens = text()[:2000]
    a, b = started(12, tokens), started(12, tokens)
    assert torch.equal(a.lm_head.weight, b.lm_head.weight)
    assert abs(a.model.embed_tokens.weight.std().item() - 1.0) < 0.2


def test_a_model_wider_than_its_vocabulary_starts_as_well():
    tokens = text()
    assert bits(started(V + 24, tokens), tokens) == pytest.approx(
        bits(started(V + 1, tokens), tokens), abs=0.05
    )


def test_a_text_without_a_second_token_starts_finite():
    decoder = started(12, text()[:1])
    assert torch.isfinite(decoder.lm_head.weight).all()
    assert torch.isfinite(decoder.model.embed_tokens.weight).all()
