"""Bits of every token of whole documents, exactly, with a model whose context is shorter than they are.

A document longer than the context is read through windows that overlap by half: each token is scored once,
by the first window that reaches it, with at least half a context before it (all that there is, near the
beginning). Windows of all documents are sorted by length and batched, so that little is padded; a
document's bits do not depend on what shares its batch beyond the last digits of fp32.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
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
    batch_tokens: int = 4096,
    processes: int = 1,
) -> list[Bits]:
    """-log2 p of every token but the first of each document, given all before it.

    Args:
        model: in evaluation on any device.
        documents: token ids, `<|bos|>` first and `<|eos|>` last; a genre tag may follow `<|bos|>` (its
            own bits are then the first element: leave them out of a score).
        context: tokens that the model reads at once; 0 takes the model's.
        batch_tokens: tokens in a batch; more is not faster on a CPU.
        processes: worker processes on a CPU; each takes its share of the batches, one thread each.

    Returns:
        One float64 array per document, one shorter than the document.
    """
    context = context or model.config.max_position_embeddings
    result = [np.zeros(max(len(d) - 1, 0)) for d in documents]
    batches = _batches(documents, context, batch_tokens)
    for batch, bits in _score_all(model, documents, batches, processes):
        for window, scores in zip(batch, bits, strict=True):
            end = window.start + window.length
            result[window.document][window.scored - 1 : end] = scores
    return result


def document_bits(
    model: Decoder, documents: Sequence[Tokens], *, skip: Sequence[int] | None = None, processes: int = 1
) -> Bits:
    """The bits of each whole document, its end included.

    Args:
        skip: how many of each document's first scored tokens do not count (1 where a tag was put in).
    """
    bits = token_bits(model, documents, processes=processes)
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
    for start in range(0, len(targets), 512):
        rows = slice(start, start + 512)
        logits = (hidden[rows] @ weight.T).float()
        chosen = logits.gather(1, targets[rows, None]).squeeze(1)
        parts.append(torch.logsumexp(logits, 1) - chosen)
    return torch.cat(parts)


def _score_all(
    model: Decoder, documents: Sequence[Tokens], batches: list[list[_Window]], processes: int
) -> list[tuple[list[_Window], list[Bits]]]:
    if processes <= 1 or len(batches) < 2 * processes or model.lm_head.weight.device.type != "cpu":
        return [(batch, _score(model, documents, batch)) for batch in batches]
    # Spawned, not forked: a fork of a process that runs OpenMP threads can hang.
    methods = multiprocessing.get_context("spawn")
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    shares = [batches[i::processes] for i in range(processes)]
    arguments = [(model.config, state, list(documents), share) for share in shares]
    with methods.Pool(processes) as pool:
        return [pair for part in pool.starmap(_score_share, arguments) for pair in part]


def _score_share(
    config: object,
    state: dict[str, NDArray[np.float32]],
    documents: list[Tokens],
    batches: list[list[_Window]],
) -> list[tuple[list[_Window], list[Bits]]]:
    torch.set_num_threads(1)
    model = Decoder(config)  # type: ignore[arg-type]
    model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    return [(batch, _score(model, documents, batch)) for batch in batches]
