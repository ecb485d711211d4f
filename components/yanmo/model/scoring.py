"""The exact bits of every token of a document, also of one that is longer than the model's context.

Documents are read in windows (windows.py), several in a batch; what shares a batch with a document changes
at most the last digits (fp32) of its bits. A `Reader` (reader.py) gives the same results faster: it pads
nothing, and reads once what several questions begin with. Training scores with its decoder.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from yanmo.common.errors import EnvironmentFault
from yanmo.model.decoder import Decoder
from yanmo.model.reader import Reader
from yanmo.model.windows import Counted, Tokens, Window, plan_batches, plan_with_heads

Bits = NDArray[np.float64]
T = TypeVar("T")
R = TypeVar("R")
BATCH_TOKENS = 1024
"""Tokens in a batch on a CPU; 512 to 4,096 are equally fast there."""
_FEWEST, _NOTHING = 100, 1e-9
"""Tokens of a batch, and bits that they have in sum where the device wrote no results: the first token of
a text is never certain."""
_GPU_LOGITS = 1 << 27
"""Logits held at a time on a GPU (0.5 GB); on a CPU those of 128 rows are, which stay in its cache (4 MB with
8,192 tokens)."""


def token_bits(
    model: Decoder | Reader,
    documents: Sequence[Tokens],
    *,
    counted: Sequence[Counted] | None = None,
    context: int = 0,
    stride: int = 0,
    batch_tokens: int = BATCH_TOKENS,
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
        batch_tokens: tokens in a batch.
        threads: batches scored at a time on a CPU, one core each. Threads and not processes, as torch's
            operations release the GIL and nothing has to be imported again.
        each_batch: called after each batch, as a sign of life.

    Returns:
        One float64 array per document, one element shorter than the document; 0 where bits are not wanted.
    """
    result = [np.zeros(max(len(d) - 1, 0)) for d in documents]
    length = context or model.config.max_position_embeddings
    batches = _planned(model, documents, length, stride, batch_tokens, counted)
    for batch, bits in score_batches([model], documents, batches, threads, counted):
        each_batch()
        for window, scores in zip(batch, bits, strict=True):
            result[window.document][window.targets] = scores
    return result


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


def _planned(
    model: Decoder | Reader,
    documents: Sequence[Tokens],
    context: int,
    stride: int,
    batch_tokens: int,
    counted: Sequence[Counted] | None,
) -> list[list[Window]]:
    if counted is not None and isinstance(model, Reader):
        return plan_with_heads(documents, context, counted, stride, batch_tokens)
    return plan_batches([len(d) for d in documents], context, stride, batch_tokens, counted)


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

    Raises:
        EnvironmentFault: a device computed nothing.
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
    if len(bits) >= _FEWEST and abs(bits.sum()) < _NOTHING:
        raise EnvironmentFault(
            f"by {_device(model)} each of {len(bits)} tokens has probability 1: it computes nothing; check "
            "the driver (nvidia-smi, dmesg), or give --device cpu"
        )
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
    goals = [torch.from_numpy(_targets(w, documents[w.document], counted)) for w in batch]
    ends = list(itertools.accumulate(int((goal >= 0).sum()) for goal in goals))
    ids = [
        torch.from_numpy(documents[w.document][w.start : w.start + w.length].astype(np.int64)) for w in batch
    ]
    if isinstance(model, Reader):
        hidden, goal = _read_rows(model, batch, ids, goals)
        return hidden, goal, ends
    device, goal = _device(model), pad_sequence(goals, True, -1).flatten()
    at = (goal >= 0).nonzero().flatten()  # here on the host: a device would be waited for
    inputs, at, goal = (_copied(x, device) for x in (pad_sequence(ids, True), at, goal[at]))
    return model.hidden(inputs, None).flatten(0, 1).index_select(0, at), goal, ends


def _copied(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host on a device; CUDA is not waited for."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _read_rows(
    model: Reader, batch: list[Window], ids: list[torch.Tensor], goals: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `_read` gives; a head that neighbours share is a row of its own, before theirs."""
    rows: list[tuple[torch.Tensor, torch.Tensor, int]] = []
    """Tokens, goals, and the row that it goes on from."""
    at = -1
    for window, tokens, goal in zip(batch, ids, goals, strict=True):
        n = window.head
        if n and (at < 0 or not torch.equal(rows[at][0], tokens[:n])):
            at = len(rows)
            rows.append((tokens[:n], goal[:n], -1))
        rows.append((tokens[n:], goal[n:], at if n else -1))
    inputs, aims, behind = zip(*rows, strict=True)
    aim = torch.cat(aims)
    wanted = aim >= 0
    return model.hidden(torch.cat(inputs), [len(row) for row in inputs], wanted, behind), aim[wanted]


def _targets(window: Window, tokens: Tokens, counted: Sequence[Counted] | None) -> NDArray[np.int64]:
    """The token after each position of a window; -1 where its bits are not wanted."""
    found = np.full(window.length, -1, np.int64)
    wanted = tokens[window.scored : window.start + window.length + 1]
    if counted is not None:
        wanted = np.where(counted[window.document][window.targets], wanted, -1)
    found[window.scored - 1 - window.start :] = wanted
    return found


@torch.no_grad()
def _nats(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if not len(targets):
        return targets.float()
    parts = [
        F.cross_entropy(logits, aims, reduction="none") for logits, aims in _logits(hidden, weight, targets)
    ]
    return torch.cat(parts)


def _logits(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits in fp32 with their targets, some rows at a time."""
    step = 128 if targets.device.type == "cpu" else max(128, _GPU_LOGITS // len(weight))
    for start in range(0, len(targets), step):
        rows = slice(start, start + step)
        yield (hidden[rows] @ weight.T).float(), targets[rows]
