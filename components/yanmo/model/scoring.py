"""The exact bits of every token of a document, also of one that is longer than the model's context.

Documents are read in windows (windows.py), several in a batch; what shares a batch with a document changes
at most the last digits (fp32) of its bits. On a CPU nothing is padded, and what several questions begin with
is read once (rows.py); on GPUs, and during training, batches are padded rows.
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
from yanmo.model.rows import Rows
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
_LOGITS, _FEWEST_COLUMNS = 1 << 19, 512
"""Logits that each thread holds at a time (2 MB), and the least width of a product: one of 128 columns takes
1.2 times as long per column."""
_SAFE = 60.0
"""Logits below this size are exponentiated without a shift."""


def token_bits(
    model: Decoder,
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


def _planned(
    model: Decoder,
    documents: Sequence[Tokens],
    context: int,
    stride: int,
    batch_tokens: int,
    counted: Sequence[Counted] | None,
) -> list[list[Window]]:
    if counted is not None and _packs(model):
        return plan_with_heads(documents, context, counted, stride, batch_tokens)
    return plan_batches([len(d) for d in documents], context, stride, batch_tokens, counted)


def score_batches(
    models: Sequence[Decoder],
    documents: Sequence[Tokens],
    batches: Sequence[list[Window]],
    threads: int,
    counted: Sequence[Counted] | None = None,
) -> Iterator[tuple[list[Window], list[Bits]]]:
    """Yield each batch with the bits of the tokens that its windows score, in the order of `batches`.

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
    """Return the results in order, `threads` at a time."""
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


def _device(model: Decoder) -> torch.device:
    return model.lm_head.weight.device


def _packs(model: Decoder) -> bool:
    """Return whether rows are read without padding: on a CPU in fp32, but for a training's attention path."""
    weight = model.lm_head.weight
    return weight.is_cpu and weight.dtype == torch.float32 and model.attention == "auto"


def _score(
    model: Decoder,
    documents: Sequence[Tokens],
    batch: list[Window],
    counted: Sequence[Counted] | None,
) -> list[Bits]:
    hidden, targets, ends = _read(model, documents, batch, counted)
    nats = _nats_in_pieces if _packs(model) else _nats
    bits = nats(hidden, model.lm_head.weight, targets).double().cpu().numpy() / math.log(2)
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


@torch.inference_mode()
def _read(
    model: Decoder,
    documents: Sequence[Tokens],
    batch: list[Window],
    counted: Sequence[Counted] | None,
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return the hidden state before each counted token (N, D), these tokens (N,), and where each window's
    end."""
    goals = [torch.from_numpy(_targets(w, documents[w.document], counted)) for w in batch]
    ends = list(itertools.accumulate(int((goal >= 0).sum()) for goal in goals))
    ids = [
        torch.from_numpy(documents[w.document][w.start : w.start + w.length].astype(np.int64)) for w in batch
    ]
    if _packs(model):
        hidden, goal = _read_rows(model, batch, ids, goals)
        return hidden, goal, ends
    device, goal = _device(model), pad_sequence(goals, True, -1).flatten()
    at = (goal >= 0).nonzero().flatten()  # here on the host: a device would be waited for
    inputs, at, goal = (_copied(x, device) for x in (pad_sequence(ids, True), at, goal[at]))
    return model.hidden(inputs, None).flatten(0, 1).index_select(0, at), goal, ends


def _copied(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the host on a device; CUDA is not waited for."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _read_rows(
    model: Decoder, batch: list[Window], ids: list[torch.Tensor], goals: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `_read` gives; a head that neighbours share is a row of its own, before theirs."""
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
    layout = Rows([len(row) for row in inputs], behind)
    return model.read(torch.cat(inputs), layout, None if wanted.all() else wanted), aim[wanted]


def _targets(window: Window, tokens: Tokens, counted: Sequence[Counted] | None) -> NDArray[np.int64]:
    """Return the token after each position of a window; -1 where its bits are not wanted."""
    found = np.full(window.length, -1, np.int64)
    wanted = tokens[window.scored : window.start + window.length + 1]
    if counted is not None:
        wanted = np.where(counted[window.document][window.targets], wanted, -1)
    found[window.scored - 1 - window.start :] = wanted
    return found


@torch.inference_mode()
def _nats(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return -ln p of each target, (N,), from final hidden states (N, D) and the head's weights (V, D)."""
    if not len(targets):
        return targets.float()
    step = 128 if targets.device.type == "cpu" else max(128, _GPU_LOGITS // len(weight))
    parts = [slice(start, start + step) for start in range(0, len(targets), step)]
    found = [
        F.cross_entropy((hidden[rows] @ weight.T).float(), targets[rows], reduction="none") for rows in parts
    ]
    return torch.cat(found)


@torch.inference_mode()
def _nats_in_pieces(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return what `_nats` does, in float64 and 1.25 times as fast on a CPU in fp32.

    Pieces of the vocabulary stay in the processor's cache while they are exponentiated and summed. That needs
    no shift by the largest logit where none can be large, as the norms of both factors tell beforehand: the
    sum of a million e^60 is finite in fp32.
    """
    norms = [torch.linalg.vector_norm(x, dim=1).max() for x in (hidden, weight) if len(hidden)]
    is_safe = bool(math.prod(norms) < _SAFE)  # False where one of them is NaN
    total = torch.zeros(len(hidden), dtype=torch.float64)
    shift = torch.zeros(len(hidden)) if is_safe else torch.full((len(hidden),), -torch.inf)
    columns = max(_FEWEST_COLUMNS, _LOGITS // max(1, len(hidden)))
    room = torch.empty(len(hidden) * columns)  # one for all pieces: the system clears new memory
    for piece in torch.split(weight, columns):
        logits = torch.mm(hidden, piece.T, out=room[: len(hidden) * len(piece)].view(-1, len(piece)))
        if not is_safe:
            before, shift = shift, torch.maximum(shift, logits.amax(1))
            total *= (before - shift).double().exp_()
            logits -= shift[:, None]
        total += logits.exp_().sum(1)
    return total.log_().add_(shift).sub_(torch.linalg.vecdot(hidden, weight[targets]))
