"""The exact bits of every token of a document, also of one that is longer than the model's context.

A document longer than the context is read through windows that advance by a stride, half a context by
default: each token is scored once, by the first window that reaches it, with at least `context - stride`
tokens before it (near the beginning, all that there are). Where a window begins depends on the position
alone, never on later tokens, so the bits are those of a proper distribution over texts: the probabilities of
all texts sum to 1 (tests/components/model/test_scoring_exact.py).

Windows of all documents are sorted by length and batched, so that there is little padding; what shares a
batch with a document changes at most the last digits (fp32) of its bits. A `Reader` (reader.py) gives the
same results faster; training scores with its decoder.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from yanmo.model.decoder import Decoder
from yanmo.model.reader import Reader

Tokens = NDArray[np.integer]
Bits = NDArray[np.float64]
Counted = NDArray[np.bool_]
T = TypeVar("T")
R = TypeVar("R")
_GPU_LOGITS = 1 << 27
"""Logits held at a time on a GPU (0.5 GB); on a CPU those of 128 rows are, which stay in its cache (4 MB with
8,192 tokens)."""


@dataclass(frozen=True)
class Window:
    """A part of a document that the model reads at once."""

    document: int
    """Index of the document."""
    start: int
    """First token that the window reads."""
    length: int
    """Tokens that it reads."""
    scored: int
    """First token that it scores; it scores all from there to `start + length`, inclusive."""

    @property
    def targets(self) -> slice:
        """Where the bits of its scored tokens stand among the document's bits."""
        return slice(self.scored - 1, self.start + self.length)


def token_bits(
    model: Decoder | Reader,
    documents: Sequence[Tokens],
    *,
    counted: Sequence[Counted] | None = None,
    context: int = 0,
    stride: int = 0,
    batch_tokens: int = 1024,
    threads: int = 1,
    each_batch: Callable[[], None] = lambda: None,
) -> list[Bits]:
    """-log2 p of every token but the first of each document, given all before it.

    Args:
        model: in evaluation mode, on any device.
        documents: token ids, `<|bos|>` first and `<|eos|>` last; a genre tag may follow `<|bos|>` (then the
            first element of the result is the tag's: leave it out of a score).
        counted: for each document, one element shorter than it: whether the bits of token k + 1 are wanted;
            None for all.
        context: tokens that the model reads at once; 0 for the model's context.
        stride: tokens by which windows advance, 1 to `context`; 0 for half the context. With 1, each token
            has a full context before it, at the price of a forward pass for each token.
        batch_tokens: tokens in a batch; 512 to 4,096 are equally fast on a CPU.
        threads: batches scored at a time on a CPU, one core each. Threads and not processes, as torch's
            operations release the GIL and nothing has to be imported again.
        each_batch: called after each batch, as a sign of life.

    Returns:
        One float64 array per document, one element shorter than the document; 0 where bits are not wanted.
    """
    result = [np.zeros(max(len(d) - 1, 0)) for d in documents]
    length = context or model.config.max_position_embeddings
    batches = plan_batches([len(d) for d in documents], length, stride, batch_tokens, counted)
    for batch, bits in score_batches([model], documents, batches, threads, counted):
        each_batch()
        for window, scores in zip(batch, bits, strict=True):
            result[window.document][window.targets] = scores
    return result


def bits_and_is_greedy(
    model: Decoder | Reader,
    documents: Sequence[Tokens],
    counted: Sequence[Counted],
    *,
    threads: int = 1,
    batch_tokens: int = 1024,
) -> list[tuple[float, bool]]:
    """For each document the bits of its counted tokens, and whether greedy decoding would choose all of them.

    Args:
        counted, threads, batch_tokens: as in `token_bits`.
    """
    found = [(0.0, True)] * len(documents)
    length = model.config.max_position_embeddings
    batches = plan_batches([len(d) for d in documents], length, 0, batch_tokens, counted)

    def score(batch: list[Window]) -> list[tuple[float, bool]]:
        hidden, targets, ends = _read(model, documents, batch, counted)
        nats, ranks = (
            model.ranked_nats(hidden, targets)
            if isinstance(model, Reader)
            else _ranked_nats(hidden, model.lm_head.weight, targets)
        )
        bits, best = nats.cpu().numpy() / math.log(2), ranks.cpu().numpy()
        return [(float(bits[a:b].sum()), bool(best[a:b].all())) for a, b in itertools.pairwise([0, *ends])]

    at_once = threads if _device(model).type == "cpu" else 1
    for batch, scores in zip(batches, _mapped(score, batches, at_once), strict=True):
        for window, (bits, best) in zip(batch, scores, strict=True):
            before = found[window.document]
            found[window.document] = (before[0] + bits, before[1] and best)
    return found


def document_bits(
    model: Decoder | Reader,
    documents: Sequence[Tokens],
    *,
    skip: Sequence[int] | None = None,
    threads: int = 1,
) -> Bits:
    """The bits of each whole document, `<|eos|>` included.

    Args:
        skip: how many of the first scored tokens of each document do not count (1 where a tag was put in).
    """
    bits = token_bits(model, documents, threads=threads)
    skips = skip if skip is not None else [0] * len(bits)
    return np.array([b[s:].sum() for b, s in zip(bits, skips, strict=True)])


def windows_of(document: int, length: int, context: int, stride: int = 0) -> list[Window]:
    """The windows over a document of `length` tokens; the last token is a target and never an input.

    Raises:
        ValueError: the stride is longer than the context, so that some tokens would be left out.
    """
    stride = stride or context - context // 2
    if not 1 <= stride <= context:
        raise ValueError(f"stride {stride}: expected 1 to {context} tokens, the context of the model")
    found, scored = [], 1
    while scored < length:
        start = 0 if scored == 1 else scored - 1 - (context - stride)
        read = min(context, length - 1 - start)
        found.append(Window(document, start, read, scored))
        scored = start + read + 1
    return found


def plan_batches(
    lengths: Sequence[int],
    context: int,
    stride: int = 0,
    batch_tokens: int = 1024,
    counted: Sequence[Counted] | None = None,
) -> list[list[Window]]:
    """Batches of the windows over documents of these lengths (tokens), sorted by length.

    Args:
        counted: as in `token_bits`; windows without a counted token are left out.
    """
    windows = [w for i, n in enumerate(lengths) for w in windows_of(i, n, context, stride)]
    if counted is not None:
        windows = [w for w in windows if counted[w.document][w.targets].any()]
    windows.sort(key=lambda w: (w.length, w.document, w.start))
    batches: list[list[Window]] = [[]]
    for window in windows:
        if (len(batches[-1]) + 1) * window.length > batch_tokens and batches[-1]:
            batches.append([])
        batches[-1].append(window)
    return batches if batches[0] else []


def score_batches(
    models: Sequence[Decoder | Reader],
    documents: Sequence[Tokens],
    batches: Sequence[list[Window]],
    threads: int,
    counted: Sequence[Counted] | None = None,
) -> Iterator[tuple[list[Window], list[Bits]]]:
    """Each batch with the bits of the tokens that its windows score, in the order of `batches`.

    Args:
        models: one on the CPU, used by `threads` threads; or copies of a model, each on a GPU of its own.
    """
    devices = len(models) if _device(models[0]).type != "cpu" else threads

    def score(numbered: tuple[int, list[Window]]) -> list[Bits]:
        return _score(models[numbered[0] % len(models)], documents, numbered[1], counted)

    yield from zip(batches, _mapped(score, list(enumerate(batches)), devices), strict=True)


def _mapped(function: Callable[[T], R], items: Sequence[T], threads: int) -> Iterator[R]:
    """The results in order, `threads` at a time."""
    if threads <= 1:
        yield from map(function, items)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # of each operation, so that the sums do not depend on `threads`
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(function, items)
    finally:
        torch.set_num_threads(before)


def _device(model: Decoder | Reader) -> torch.device:
    return model.device if isinstance(model, Reader) else model.lm_head.weight.device


def _score(
    model: Decoder | Reader,
    documents: Sequence[Tokens],
    batch: list[Window],
    counted: Sequence[Counted] | None,
) -> list[Bits]:
    hidden, targets, ends = _read(model, documents, batch, counted)
    nats = (
        model.nats(hidden, targets)
        if isinstance(model, Reader)
        else _nats(hidden, model.lm_head.weight, targets).double()
    )
    bits = nats.cpu().numpy() / math.log(2)
    found = [bits[a:b] for a, b in itertools.pairwise([0, *ends])]
    if counted is None:
        return found
    rows = [np.zeros(w.targets.stop - w.targets.start) for w in batch]
    for row, window, each in zip(rows, batch, found, strict=True):
        row[counted[window.document][window.targets]] = each
    return rows


@torch.no_grad()
def _read(
    model: Decoder | Reader,
    documents: Sequence[Tokens],
    batch: list[Window],
    counted: Sequence[Counted] | None,
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """The hidden state before each counted token (N, D), these tokens (N,), and where each window's end."""
    longest = max(w.length for w in batch)
    ids = np.zeros((len(batch), longest), np.int64)
    targets = np.full((len(batch), longest), -1, np.int64)
    for row, w in enumerate(batch):
        tokens = documents[w.document]
        ids[row, : w.length] = tokens[w.start : w.start + w.length]
        wanted = tokens[w.scored : w.start + w.length + 1]
        if counted is not None:
            wanted = np.where(counted[w.document][w.targets], wanted, -1)
        targets[row, w.scored - 1 - w.start : w.length] = wanted
    device = _device(model)
    goal, inputs = torch.from_numpy(targets).to(device), torch.from_numpy(ids).to(device)
    at = goal >= 0
    hidden = (
        model.hidden(inputs, at)
        if isinstance(model, Reader)
        else model.hidden(inputs, torch.zeros_like(inputs))[at]
    )
    return hidden, goal[at], at.sum(1).cumsum(0).tolist()


@torch.no_grad()
def _nats(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if not len(targets):
        return targets.float()
    parts = [
        F.cross_entropy(logits, aims, reduction="none") for logits, aims in _logits(hidden, weight, targets)
    ]
    return torch.cat(parts)


@torch.no_grad()
def _ranked_nats(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """-ln p of each target (float64), and whether no other token is likelier than it."""
    nats, best = [targets.new_zeros(0, dtype=torch.float64)], [targets.new_zeros(0, dtype=torch.bool)]
    for logits, aims in _logits(hidden, weight, targets):
        nats.append(F.cross_entropy(logits, aims, reduction="none").double())
        best.append(logits.gather(1, aims[:, None]).squeeze(1) >= logits.amax(1))
    return torch.cat(nats), torch.cat(best)


def _logits(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits in fp32 with their targets, some rows at a time."""
    step = 128 if targets.device.type == "cpu" else max(128, _GPU_LOGITS // len(weight))
    for start in range(0, len(targets), step):
        rows = slice(start, start + step)
        yield (hidden[rows] @ weight.T).float(), targets[rows]
