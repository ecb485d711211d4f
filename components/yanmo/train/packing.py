"""Which documents share a row: a plan of one epoch, computed from lengths alone.

A document longer than the context is cut into chunks; chunks are packed into rows of `context` positions,
best fit within blocks of a random order, so that rows are nearly full and the mix stays random. Documents
that fit are never cut. Padding each document to a row would waste 75 to 93 % of the positions on poems, and
cutting one long stream every `context` tokens would cut 7 to 16 % of them (knowledge/tokens.md, section 4);
best fit over the whole epoch at once wastes least, but sorts the corpus by length.

A pure function of (lengths, has_tag, context, seed, epoch), by arithmetic only, so that no version of a
random generator can change the order of the data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yanmo.common.jit import compiled

BLOCK_CHUNKS = 4096
"""Chunks that are packed together."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Plan:
    """The rows of one epoch, in the order in which they are trained on.

    Row `r` holds the pieces `row_offsets[r]` to `row_offsets[r + 1]`. Piece `p` is fed
    `ids[start : start + length]` of its document and predicts `ids[start + 1 : start + length + 1]`: the
    first piece of a document starts at `<|bos|>`, a later one at the last token that the piece before it
    predicted, so that each token after `<|bos|>` is predicted exactly once.
    """

    context: int
    """Positions of a row."""
    row_offsets: Array
    """int64 (rows + 1)"""
    document: Array
    """int32 (pieces): index into the lengths the plan was made from."""
    start: Array
    """int32 (pieces): first token fed, counted from the document's `<|bos|>`."""
    length: Array
    """int32 (pieces): tokens predicted."""
    tagged: Array
    """bool (pieces): one more position, after `<|bos|>`, holds the genre tag, which is not predicted."""
    fill: float
    """Share of all positions that predict a token; waste and tags are the rest."""
    digest: str
    """sha256 of everything above: what a checkpoint compares."""

    def __len__(self) -> int:
        return len(self.row_offsets) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens predicted in the epoch."""
        return int(self.length.sum())

    @property
    def waste(self) -> float:
        """Share of all positions that hold padding."""
        total = len(self) * self.context
        return 1 - (self.num_tokens + int(self.tagged.sum())) / total if total else 0.0


def plan_epoch(lengths: Array, has_tag: Array, context: int, seed: int, epoch: int) -> Plan:
    """The plan of one epoch: 70 to 90 ms per 100,000 poems (one CPU), 20 times that without numba.

    Args:
        lengths: tokens of each document, `<|bos|>` and `<|eos|>` included (at least 2).
        has_tag: whether a genre tag follows `<|bos|>`, per document.
        context: positions of a row, at least 2.
        seed: any integer; equal seeds give equal plans.
        epoch: 0, 1, ...; each has another order.

    Raises:
        ValueError: a context or a length that no row can hold.
    """
    lengths, has_tag = np.asarray(lengths, np.int64), np.asarray(has_tag, bool)
    if context < 2 or context > 1 << 24:
        raise ValueError(f"context of {context} positions: expected 2 to {1 << 24}")
    if lengths.shape != has_tag.shape or lengths.ndim != 1:
        raise ValueError(
            f"lengths have shape {lengths.shape}, has_tag {has_tag.shape}; expected one value each"
        )
    if len(lengths) and int(lengths.min()) < 2:
        raise ValueError(
            f"document {int(lengths.argmin())} has {int(lengths.min())} tokens, expected at least 2"
        )
    document, start, length, tagged = _chunks(lengths, has_tag, context)
    order = np.argsort(keyed_random(len(document), seed, epoch, 0), kind="stable")
    row, rows = _rows(length + tagged, order, context)
    shuffled = np.empty(rows, np.int64)
    shuffled[np.argsort(keyed_random(rows, seed, epoch, 1), kind="stable")] = np.arange(rows)
    row = shuffled[row]
    by_row = order[np.argsort(row[order], kind="stable")]
    row_offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=rows), out=row_offsets[1:])
    arrays = (
        row_offsets,
        document[by_row].astype(np.int32),
        start[by_row].astype(np.int32),
        length[by_row].astype(np.int32),
        tagged[by_row],
    )
    fill = float(length.sum()) / (rows * context) if rows else 0.0
    return Plan(context, *arrays, fill, _digest(context, arrays))


def tagged_documents(ids: Sequence[str], seed: int, epoch: int, share: float) -> Array:
    """Which documents show their genre tag in this epoch: `share` of them, by hash of seed, epoch and id.

    Args:
        ids: document ids (hexadecimal, at least 16 digits).
        share: 0 to 1.
    """
    value = np.fromiter((int(i[:16], 16) for i in ids), np.uint64, len(ids))
    mixed = _mix(value ^ _mix(_state(seed, epoch, 2)))
    tagged: Array = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
    return tagged


def keyed_random(count: int, seed: int, epoch: int, purpose: int) -> Array:
    """`count` random 64-bit numbers that depend on nothing but the arguments (SplitMix64)."""
    with np.errstate(over="ignore"):
        step = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return _mix(step + _mix(_state(seed, epoch, purpose)))


def _state(seed: int, epoch: int, purpose: int) -> Array:
    text = f"{seed}/{epoch}/{purpose}".encode()
    return np.frombuffer(hashlib.sha256(text).digest()[:8], np.uint64)


def _mix(z: Array) -> Array:
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = z ^ (z >> np.uint64(31))
    return mixed


def _chunks(lengths: Array, has_tag: Array, context: int) -> tuple[Array, Array, Array, Array]:
    """Document, start, tokens predicted and tag of every chunk, in the order of documents.

    All chunks of a document but its last fill a row.
    """
    positions = lengths - 1 + has_tag
    count = np.maximum(-(-positions // context), 1)
    document = np.repeat(np.arange(len(lengths)), count)
    number = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
    begin = number * context  # in positions, the tag's included
    size = np.minimum(positions[document] - begin, context)
    tagged = has_tag[document] & (number == 0)
    start = np.where(number == 0, 0, begin - has_tag[document])
    return document, start, size - tagged, tagged


def _rows(sizes: Array, order: Array, context: int) -> tuple[Array, int]:
    """The row of each chunk, and the number of rows; chunks are taken in `order`, block by block."""
    row, rows = np.empty(len(sizes), np.int64), 0
    for begin in range(0, len(order), BLOCK_CHUNKS):
        block = order[begin : begin + BLOCK_CHUNKS]
        longest_first = block[np.argsort(-sizes[block], kind="stable")]
        placed, used = np.empty(len(block), np.int64), 0
        used = _best_fit(sizes[longest_first], context, placed)
        row[longest_first] = rows + placed
        rows += used
    return row, rows


@compiled
def _best_fit(sizes: Array, context: int, placed: Array) -> int:
    """Put each chunk into the row that it fills best; returns the number of rows.

    `head[c]` is the last row with `c` positions left, `below[row]` the one before it; `some[c // 32]` counts
    the rows of 32 values of `c`, to skip over empty ones.
    """
    head = np.full(context + 1, -1, np.int64)
    below = np.full(len(sizes), -1, np.int64)
    some = np.zeros(context // 32 + 1, np.int64)
    rows = 0
    for i in range(len(sizes)):
        size = sizes[i]
        left = size
        while left <= context and head[left] < 0:
            if left % 32 == 0 and some[left // 32] == 0:
                left += 32
            else:
                left += 1
        if left > context:
            row, left = rows, context
            rows += 1
        else:
            row = head[left]
            head[left] = below[row]
            some[left // 32] -= 1
        placed[i] = row
        left -= size
        if left > 0:
            below[row] = head[left]
            head[left] = row
            some[left // 32] += 1
    return rows


def _digest(context: int, arrays: tuple[Array, ...]) -> str:
    total = hashlib.sha256(f"yanmo.plan/1 {context}".encode())
    for array in arrays:
        total.update(f" {array.dtype.str} {len(array)} ".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
