"""Bits of every token of whole documents, exactly, with a model whose context is shorter than they are.

A document longer than the context is read through windows that overlap by half: each token is scored once,
by the first window that reaches it, with at least half a context before it (all that there is, near the
beginning). Windows of all documents are sorted by length and batched, so that little is padded; a
document's bits do not depend on what shares its batch beyond the last digits of fp32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from yanmo.model.decoder import Decoder

Tokens = NDArray[np.integer]
Bits = NDArray[np.float64]


@dataclass(frozen=True)
class _Window:
    document: int
    start: int
    """First token that the window reads."""
    length: int
    """Tokens that it reads."""
    scored: int
    """First token that it scores; it scores all from there to `start + length`, inclusive."""


def token_bits(
    model: Decoder,
    documents: Sequence[Tokens],
    *,
    context: int = 0,
    batch_tokens: int = 1024,
    threads: int = 1,
) -> list[Bits]:
    """-log2 p of every token but the first of each document, given all before it.

    Args:
        model: in evaluation on any device.
        documents: token ids, `<|bos|>` first and `<|eos|>` last; a genre tag may follow `<|bos|>` (its
            own bits are then the first element: leave them out of a score).
        context: tokens that the model reads at once; 0 takes the model's.
        batch_tokens: tokens in a batch; 512 to 4,096 are equally fast on a CPU.
        threads: batches scored at a time on a CPU, one core each. Threads, not processes: the operations
            release the interpreter, and nobody waits for torch to be imported again.

    Returns:
        One float64 array per document, one shorter than the document.
    """
    context = context or model.config.max_position_embeddings
    result = [np.zeros(max(len(d) - 1, 0)) for d in documents]
    batches = _batches(documents, context, batch_tokens)
    for batch, bits in _score_all(model, documents, batches, threads):
        for window, scores in zip(batch, bits, strict=True):
            end = window.start + window.length
            result[window.document][window.scored - 1 : end] = scores
    return result


def document_bits(
    model: Decoder, documents: Sequence[Tokens], *, skip: Sequence[int] | None = None, threads: int = 1
) -> Bits:
    """The bits of each whole document, its end included.

    Args:
        skip: how many of each document's first scored tokens do not count (1 where a tag was put in).
    """
    bits = token_bits(model, documents, threads=threads)
    skips = skip if skip is not None else [0] * len(bits)
    return np.array([b[s:].sum() for b, s in zip(bits, skips, strict=True)])


def _windows(document: int, length: int, context: int) -> list[_Window]:
    """The windows over a document of `length` tokens, whose last one is only ever a target."""
    found, scored = [], 1
    while scored < length:
        start = 0 if scored == 1 else scored - 1 - context // 2
        read = min(context, length - 1 - start)
        found.append(_Window(document, start, read, scored))
        scored = start + read + 1
    return found


def _batches(documents: Sequence[Tokens], context: int, batch_tokens: int) -> list[list[_Window]]:
    windows = [w for i, d in enumerate(documents) for w in _windows(i, len(d), context)]
    windows.sort(key=lambda w: (w.length, w.document, w.start))
    batches: list[list[_Window]] = [[]]
    for window in windows:
        if (len(batches[-1]) + 1) * window.length > batch_tokens and batches[-1]:
            batches.append([])
        batches[-1].append(window)
    return batches if batches[0] else []


@torch.no_grad()
def _score(model: Decoder, documents: Sequence[Tokens], batch: list[_Window]) -> list[Bits]:
    device = model.lm_head.weight.device
    longest = max(w.length for w in batch)
    ids = np.zeros((len(batch), longest), np.int64)
    targets = np.full((len(batch), longest), -1, np.int64)
    for row, w in enumerate(batch):
        tokens = documents[w.document]
        ids[row, : w.length] = tokens[w.start : w.start + w.length]
        targets[row, w.scored - 1 - w.start : w.length] = tokens[w.scored : w.start + w.length + 1]
    goal = torch.from_numpy(targets).to(device)
    at = goal >= 0
    inputs = torch.from_numpy(ids).to(device)
    hidden = model.hidden(inputs, torch.zeros_like(inputs))[at]
    nats = _nats(hidden, model.lm_head.weight, goal[at]).double().cpu().numpy() / math.log(2)
    ends = at.sum(1).cumsum(0).tolist()
    return [nats[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _nats(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    parts = []
    for start in range(0, len(targets), 256):  # 8 MB of logits: they stay in the cache
        rows = slice(start, start + 256)
        logits = (hidden[rows] @ weight.T).float()
        parts.append(F.cross_entropy(logits, targets[rows], reduction="none"))
    return torch.cat(parts)


def _score_all(
    model: Decoder, documents: Sequence[Tokens], batches: list[list[_Window]], threads: int
) -> Iterator[tuple[list[_Window], list[Bits]]]:
    score = functools.partial(_score, model, documents)
    if threads <= 1 or model.lm_head.weight.device.type != "cpu":
        yield from zip(batches, map(score, batches), strict=True)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # of each operation, so that the sums do not depend on `threads`
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from zip(batches, pool.map(score, batches), strict=True)
    finally:
        torch.set_num_threads(before)
