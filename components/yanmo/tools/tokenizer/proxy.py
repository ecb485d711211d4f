"""One small training per tokenizer, all of equal compute: bits per character that can be compared.

Equal compute is an equal number of floating-point operations, counted from the shapes, so that the figures do
not depend on the machine: a large vocabulary pays for its head, a fine one for its many tokens. Two ids of
their own begin and end each document, whatever the tokenizer has; every bit counts, ends included.

    T = positions in a row, D = model width, V = vocabulary
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from yanmo.model.bigram_start import count_bigrams, set_bigram_start
from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.loss import linear_cross_entropy
from yanmo.model.scoring import document_bits

Ids = NDArray[np.int64]
ROWS, T = 24, 64
SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "intermediate_size": 352,
    "max_position_embeddings": T,
}
_MATRIX_RATE, _TABLE_RATE, _NORM_RATE, _WARM_UP = 0.02, 0.01, 0.003, 10
"""Learning rates and warm-up of docs/explanation/recipe.md."""


@dataclass(frozen=True, kw_only=True)
class ProxyTask:
    """One training, as a process gets it."""

    name: str
    encoded: Path
    """An .npz of `learned`, `learned_offsets`, `held_out`, `held_out_offsets`: ids of texts end to end."""
    vocab_size: int
    """Ids of the tokenizer; the two of the proxy come after them."""
    operations: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The result of one training."""

    bits: NDArray[np.float64]
    """Bits of each held-out document."""
    steps: int
    tokens: int
    epochs: float
    parameters: int
    cpu_seconds: float


def train_proxy(job: ProxyTask) -> Trained:
    """Train one proxy and score what is held out; a pure function of the job."""
    started = time.process_time()
    torch.set_num_threads(1)
    with np.load(job.encoded) as arrays:
        learned = _documents(arrays["learned"], arrays["learned_offsets"], job.vocab_size)
        held_out = _documents(arrays["held_out"], arrays["held_out_offsets"], job.vocab_size)
    decoder = Decoder(DecoderConfig(vocab_size=job.vocab_size + 2, **SHAPE))
    generator = torch.Generator().manual_seed(job.seed)
    decoder.initialize(generator, 1.0)
    pairs = [(document[:-1], document[1:]) for document in learned]
    set_bigram_start(decoder, count_bigrams(pairs, job.vocab_size + 2), generator, 1.0)
    steps = max(1, int(job.operations / (operations_per_token(job.vocab_size + 2) * ROWS * T)))
    _train(decoder, learned, job, steps)
    bits = document_bits(decoder.eval(), held_out)
    return Trained(
        bits=bits,
        steps=steps,
        tokens=steps * ROWS * T,
        epochs=steps * ROWS * T / sum(map(len, learned)),
        parameters=sum(p.numel() for p in decoder.parameters()),
        cpu_seconds=time.process_time() - started,
    )


def operations_per_token(vocab_size: int) -> float:
    """Floating-point operations to train on one token: 6 per weight of a matrix (the embedding is only
    looked up), and the attention's scores (Kaplan et al. 2020, section 2.1, backward included)."""
    D, layers = int(SHAPE["hidden_size"]), int(SHAPE["num_hidden_layers"])
    heads = (SHAPE["num_attention_heads"] + SHAPE["num_key_value_heads"]) * SHAPE["head_dim"]
    layer = 2 * D * int(heads) + 3 * D * int(SHAPE["intermediate_size"])
    return 6.0 * (layers * layer + vocab_size * D) + 12.0 * layers * T * D


def _documents(ids: Ids, offsets: Ids, vocab_size: int) -> list[Ids]:
    """Each document between the proxy's own begin and end."""
    ends = np.array([vocab_size]), np.array([vocab_size + 1])
    return [
        np.concatenate([ends[0], ids[a:b], ends[1]]).astype(np.int64) for a, b in pairwise(offsets.tolist())
    ]


def _train(decoder: Decoder, documents: list[Ids], job: ProxyTask, steps: int) -> None:
    matrices = [p for n, p in decoder.model.layers.named_parameters() if p.ndim == 2]
    tables = [decoder.model.embed_tokens.weight, decoder.lm_head.weight]
    norms = [p for p in decoder.parameters() if p.ndim < 2]
    groups = [{"params": tables, "lr": _TABLE_RATE}, {"params": norms, "lr": _NORM_RATE}]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=_MATRIX_RATE, weight_decay=0.0),
        torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
    peaks = [[group["lr"] for group in one.param_groups] for one in optimizers]
    rows = _rows(documents, job.seed)
    warm_up = min(_WARM_UP, steps)
    for step in range(steps):
        factor = min((step + 1) / warm_up, (steps - step) / max(steps - warm_up, 1), 1.0)
        batch = torch.from_numpy(np.stack([next(rows) for _ in range(ROWS)]))
        segments = (batch[:, :-1] == job.vocab_size).cumsum(1)
        target = batch[:, 1:].flatten()
        counted = target != job.vocab_size  # <|bos|> is given, not predicted
        hidden = decoder.hidden(batch[:, :-1], segments).flatten(0, 1)[counted]
        loss = linear_cross_entropy(
            hidden, decoder.lm_head.weight, target[counted], 1.0 / max(int(counted.sum()), 1)
        )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        for one, rates in zip(optimizers, peaks, strict=True):
            for group, rate in zip(one.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            one.step()
            one.zero_grad()


def _rows(documents: list[Ids], seed: int) -> Iterator[Ids]:
    """Rows of T + 1 tokens of the documents laid end to end, in another order in each epoch."""
    draw, left = np.random.default_rng(seed), np.empty(0, np.int64)
    while True:
        order = draw.permutation(len(documents)).tolist()
        stream = np.concatenate([left, *(documents[i] for i in order)])
        at = 0
        while at + T + 1 <= len(stream):
            yield stream[at : at + T + 1]
            at += T
        left = stream[at:]
