"""The inner loops of `packing`: pieces into rows. numba compiles them where it is installed; the results are
the same without it."""

from __future__ import annotations

from typing import Any

import numpy as np

from yanmo.common.jit import compiled_after

Array = np.ndarray[Any, np.dtype[Any]]
_IN_PYTHON = 50_000
"""Pieces that plain Python packs, 5 to 10 us each, before numba is imported: 0.7 CPU-seconds per rank."""


def longest_first(sizes: Array, context: int) -> Array:
    """Indexes of `sizes` (1 to `context`) from the largest to the smallest; equal ones keep their order."""
    order = np.empty(len(sizes), np.int64)
    _counting_sort(context - sizes, np.zeros(context + 1, np.int64), order)
    return order


def sorted_by_row(row: Array, rows: int) -> tuple[Array, Array]:
    """Indexes of the pieces in the order of their rows, and where each row begins in them (rows + 1)."""
    order, starts = np.empty(len(row), np.int64), np.zeros(rows + 1, np.int64)
    _counting_sort(row, starts, order)
    return order, starts


@compiled_after(_IN_PYTHON)
def _counting_sort(keys: Array, starts: Array, order: Array) -> None:
    """Fill `order` with the stable order of `keys`, `starts` with where each value of them begins."""
    for key in keys:
        starts[key] += 1
    total = 0
    for key in range(len(starts)):
        count = starts[key]
        starts[key] = total
        total += count
    ends = starts.copy()
    for i in range(len(keys)):
        order[ends[keys[i]]] = i
        ends[keys[i]] += 1


@compiled_after(_IN_PYTHON)
def best_fit(sizes: Array, context: int, placed: Array, free: Array) -> int:
    """Put each piece into the row in which the fewest positions stay free; returns the number of rows.

    `placed` gets the row of each piece, `free` the positions left in each row. `head[c]` is the last row
    with `c` positions left, `below[row]` the one before it; `some[c // 32]` counts the rows of 32 values of
    `c`, so that values without a row are skipped 32 at a time.
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
        free[row] = left
        if left > 0:
            below[row] = head[left]
            head[left] = row
            some[left // 32] += 1
    return rows


@compiled_after(_IN_PYTHON)
def pour(
    sizes: Array,
    has_tag: Array,
    free: Array,
    context: int,
    which: Array,
    start: Array,
    length: Array,
    into: Array,
) -> tuple[int, int]:
    """Cut documents wherever a row ends: they fill what is `free` in the rows, then new rows.

    Each piece predicts a token at least, so that the last position of a row may stay free before a tag.

    Args:
        sizes: positions of each document.
        has_tag: whether a document begins with a genre tag, which is a position but not predicted.
        free: positions left in each row.
        which, start, length, into: filled with document, first position, positions and row of each piece.

    Returns:
        The number of pieces and the number of rows.
    """
    pieces, row = 0, 0
    space = free[0] if len(free) else context
    for i in range(len(sizes)):
        begin = 0
        while begin < sizes[i]:
            left = sizes[i] - begin
            take = min(left, space)
            least = 1 + (1 if begin == 0 and has_tag[i] else 0)
            if (take < left and take < least) or take == 0:
                row += 1
                space = free[row] if row < len(free) else context
                continue
            which[pieces], start[pieces], length[pieces], into[pieces] = i, begin, take, row
            pieces += 1
            begin += take
            space -= take
    used = row + 1 if space < context else row
    return pieces, max(used, len(free))
