"""Windows score each token once, with enough context, and exactly."""

import dataclasses

import numpy as np
import pytest
import torch
from tiny_model import SHAPE

from yanmo.model.decoder import Decoder
from yanmo.model.scoring import token_bits


def document_bits(model, documents, **how):
    return np.array([bits.sum() for bits in token_bits(model, documents, **how)])


CONTEXT = 12


@pytest.fixture(scope="module")
def model() -> Decoder:
    torch.manual_seed(5)
    found = Decoder(dataclasses.replace(SHAPE, vocab_size=40, max_position_embeddings=CONTEXT))
    for parameter in found.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return found


def by_hand(model, tokens):
    """Each token's bits from a forward of its own."""
    bits, scored = [], 1
    while scored < len(tokens):
        start = 0 if scored == 1 else scored - 1 - CONTEXT // 2
        for t in range(scored, min(len(tokens), start + CONTEXT + 1)):
            logits = model(torch.tensor([tokens[start:t].tolist()]))[0, -1].double()
            bits.append(-torch.log_softmax(logits, -1)[tokens[t]].item() / np.log(2))
            scored = t + 1
    return np.array(bits)


@torch.no_grad()
def test_every_token_is_scored_once_as_a_forward_of_its_own_does(model):
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 40, n) for n in (2, 3, 12, 13, 14, 19, 40, 1)]
    found = token_bits(model, texts, batch_tokens=48)
    for text, bits in zip(texts, found, strict=True):
        assert len(bits) == len(text) - 1
        assert np.abs(bits - by_hand(model, text)).max(initial=0) < 1e-5


def test_bits_do_not_depend_on_batches_or_processes(model):
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 40, n) for n in rng.integers(2, 60, 50)]
    one = document_bits(model, texts)
    two = document_bits(model, texts, threads=2)
    alone = np.concatenate([document_bits(model, [t]) for t in texts])
    assert np.abs(one - two).max() < 1e-4
    assert np.abs(one - alone).max() < 1e-4


def test_no_documents_have_no_bits(model):
    assert token_bits(model, []) == []
