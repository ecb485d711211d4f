"""Which documents share a row: the plan of one epoch, computed from lengths alone.

`best-fit`, the default: a document longer than the context is cut into windows; windows are packed into rows
of `context` positions, by best fit within blocks of a random order, so that rows are nearly full and the mix
stays random. Documents that fit are never cut. With contexts of 128 to 2,048, padding each document to a row
(`one`) leaves 42 to 95 % of the positions empty, and cutting one long stream every `context` tokens
(`concat`) cuts 5 to 50 % of the documents (docs/explanation/packing.md); best fit over the whole epoch at
once wastes least, but sorts the corpus by length.

The plan is a pure function of (lengths, has_tag, settings, seed, epoch), made by arithmetic only, so that no
version of a random generator can change the order of the data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from yanmo.formats.packing_loops import best_fit, longest_first, pour, sorted_by_row
from yanmo.formats.packing_settings import Packing

_LEAST_BLOCK = 4096
"""Pieces that are packed together, at least."""
_BLOCK_PER_POSITION = 64
"""Pieces that are packed together, for each position of a row: so many that the last row of a block, which
stays half empty, hardly counts."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class PackingPlan:
    """The rows of one epoch, in the order in which they are trained on.

    Row `r` holds the pieces `row_offsets[r]` to `row_offsets[r + 1]`. The input of piece `p` is
    `ids[start : start + length]` of its document, its targets are `ids[start + 1 : start + length + 1]`: the
    first piece of a document starts at `<|bos|>`, a later one at the last token that the piece before it
    predicted, so that each token after `<|bos|>` carries loss exactly once.
    """

    context: int
    """Positions of a row."""
    row_offsets: Array
    """int64 (rows + 1)"""
    document: Array
    """int32 (pieces): index into the lengths the plan was made from."""
    start: Array
    """int32 (pieces): first input token, counted from the document's `<|bos|>`."""
    length: Array
    """int32 (pieces): tokens predicted."""
    tagged: Array
    """bool (pieces): whether a further position, after `<|bos|>`, holds the genre tag, not predicted."""
    fill: float
    """Share of all positions that carry loss; waste and tags are the rest."""
    digest: str
    """sha256 of the settings and the arrays: a checkpoint resumes only with the same plan."""

    def __len__(self) -> int:
        return len(self.row_offsets) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens that carry loss in the epoch (ignoring loss spans)."""
        return int(self.length.sum())

    @property
    def waste(self) -> float:
        """Share of all positions that hold padding."""
        total = len(self) * self.context
        return 1 - (int(self.length.sum()) + int(self.tagged.sum())) / total if total else 0.0


def plan_epoch(lengths: Array, has_tag: Array, how: Packing, seed: int, epoch: int) -> PackingPlan:
    """Return the plan of one epoch.

    It takes 0.4 CPU-seconds per million documents, 50 times as long without numba (benchmarks/cache.py at
    816394a).

    Args:
        lengths: tokens of each document, `<|bos|>` and `<|eos|>` included (at least 2).
        has_tag: for each document, whether a genre tag follows `<|bos|>`.
        how: context and packing.
        seed: any integer; equal seeds give equal plans.
        epoch: 0, 1, ...; each has an order of its own.

    Raises:
        ValueError: `lengths` and `has_tag` differ in shape, or a document has fewer than 2 tokens.
    """
    lengths, has_tag = np.asarray(lengths, np.int64), np.asarray(has_tag, bool)
    if lengths.shape != has_tag.shape or lengths.ndim != 1:
        raise ValueError(
            f"lengths have shape {lengths.shape}, has_tag {has_tag.shape}; expected one value each"
        )
    if len(lengths) and int(lengths.min()) < 2:
        raise ValueError(
            f"document {int(lengths.argmin())} has {int(lengths.min())} tokens, expected at least 2"
        )
    pieces, row, rows = _pack(lengths, has_tag, how, seed, epoch)
    shuffled = np.empty(rows, np.int64)
    shuffled[np.argsort(keyed_random(rows, seed, epoch, 1))] = np.arange(rows)
    order, row_offsets = sorted_by_row(shuffled[row], rows)
    document, begin, size = (column[order] for column in pieces)
    tagged = has_tag[document] & (begin == 0)
    start = np.where(begin == 0, 0, begin - has_tag[document])
    document, start, length = (a.astype(np.int32) for a in (document, start, size - tagged))
    fill = float(length.sum()) / (rows * how.context) if rows else 0.0
    digest = _digest(how, (row_offsets, document, start, length, tagged))
    return PackingPlan(how.context, row_offsets, document, start, length, tagged, fill, digest)


Pieces = tuple[Array, Array, Array]
"""Document, first position in it (a tag counts as one) and number of positions of each piece, in the order of
packing."""


def _pack(lengths: Array, has_tag: Array, how: Packing, seed: int, epoch: int) -> tuple[Pieces, Array, int]:
    """Pieces, the row of each, and the number of rows."""
    positions = lengths - 1 + has_tag
    longest = how.longest_whole
    if longest < how.context:  # no windows: documents longer than this are cut where rows end
        windows = np.arange(len(lengths)), np.zeros(len(lengths), np.int64), positions
    else:
        windows = _windows(positions, how.context)
        longest = how.context
    order = np.argsort(keyed_random(len(windows[0]), seed, epoch, 0))
    document, begin, size = (column[order] for column in windows)
    if how.mode == "one":
        return (document, begin, size), np.arange(len(order)), len(order)
    block = max(_LEAST_BLOCK, _BLOCK_PER_POSITION * how.context) if longest else max(len(order), 1)
    found: list[tuple[Array, ...]] = []
    rows = 0
    for at in range(0, len(order), block):
        part = slice(at, at + block)
        *columns, used = _pack_block(document[part], begin[part], size[part], has_tag, how, longest)
        columns[3] += rows
        found.append(tuple(columns))
        rows += used
    if not found:
        empty = np.empty(0, np.int64)
        return (empty, empty, empty), empty, 0
    document, begin, size, row = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return (document, begin, size), row, rows


def _pack_block(
    document: Array, begin: Array, size: Array, has_tag: Array, how: Packing, longest: int
) -> tuple[Array, Array, Array, Array, int]:
    """Document, begin, size and row of the pieces of one block, and its number of rows."""
    whole = np.flatnonzero(size <= longest)
    placed, free = np.empty(len(whole), np.int64), np.empty(len(whole), np.int64)
    order = longest_first(size[whole], how.context)
    rows = best_fit(size[whole][order], how.context, placed, free)
    row = np.empty(len(whole), np.int64)
    row[order] = placed
    if len(whole) == len(size):
        return document, begin, size, row, rows
    cut = np.flatnonzero(size > longest)
    most = len(cut) + rows + int(size[cut].sum()) // (how.context - 1) + 2
    which, start, length, into = (np.empty(most, np.int64) for _ in range(4))
    count, rows = pour(
        size[cut], has_tag[document[cut]], free[:rows], how.context, which, start, length, into
    )
    of = cut[which[:count]]
    return (
        np.concatenate([document[whole], document[of]]),
        np.concatenate([begin[whole], start[:count]]),
        np.concatenate([size[whole], length[:count]]),
        np.concatenate([row, into[:count]]),
        rows,
    )


def _windows(positions: Array, context: int) -> Pieces:
    """Return the windows over each document, in the order of documents: all but its last fill a row."""
    count = np.maximum(-(-positions // context), 1)
    document = np.repeat(np.arange(len(positions)), count)
    first = np.cumsum(count) - count
    begin = (np.arange(len(document)) - np.repeat(first, count)) * context
    return document, begin, np.minimum(positions[document] - begin, context)


def id_numbers(ids: Array) -> Array:
    """Return the first 16 hexadecimal digits of each document id, as a number: uint64 (documents)."""
    digits = np.array(ids, dtype="S16").view(np.uint8).reshape(-1, 16).astype(np.uint64)
    values = np.where(digits > ord("9"), (digits | np.uint64(32)) - np.uint64(87), digits - np.uint64(48))
    shifts = np.arange(60, -4, -4).astype(np.uint64)
    numbers: Array = np.bitwise_or.reduce(values << shifts, axis=1)
    return numbers


def tagged_documents(numbers: Array, seed: int, epoch: int, share: float) -> Array:
    """Return which documents have their genre tag in this epoch, by a hash of seed, epoch and id.

    Args:
        numbers: the documents' ids as numbers (`id_numbers`).
        share: 0 to 1.
    """
    mixed = _mix(numbers ^ _mix(_state(seed, epoch, 2)))
    tagged: Array = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
    return tagged


def keyed_random(count: int, seed: int, epoch: int, purpose: int) -> Array:
    """`count` random 64-bit numbers, no two equal, that depend on nothing but the arguments (SplitMix64)."""
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


def _digest(how: Packing, arrays: tuple[Array, ...]) -> str:
    head = f"yanmo.plan/1 {how.context}" if how.is_plain else f"yanmo.plan/2 {how}"
    total = hashlib.sha256(head.encode())
    for array in arrays:
        total.update(f" {array.dtype.str} {len(array)} ".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()
