"""From pairs of similar documents to clusters, and to the copies that stay.

A cluster is a connected component: what the split must not tear apart. A document is dropped only in favour
of a better one that is similar to it itself, so a chain of small changes does not swallow its far ends: one
cluster may keep several documents. Alternative not taken: one document per component, as in datatrove.

The loops are no SQL: each step needs what the one before it found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.jit import compiled_after

Ints32 = npt.NDArray[np.int32]
Pairs = Iterable[tuple[Any, Any]]
"""Parts of two arrays of numbers, one after another."""

_COMPILED_FROM = 200_000
"""Pairs from which on it pays to load numba (1.2 s of CPU)."""


def components(count: int, pairs: Pairs) -> Ints32:
    """For each of `count` numbers the smallest one that it is connected with."""
    parent = np.arange(count, dtype=np.int32)
    for first, second in pairs:
        _join(first, second, parent)
    while not np.array_equal(root := parent[parent], parent):
        parent = root
    return parent


@compiled_after(_COMPILED_FROM)
def _join(first: Any, second: Any, parent: Any) -> None:
    """Union by the smaller number, with path halving."""
    for n in range(first.shape[0]):
        a, b = first[n], second[n]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b


def keep_best(count: int, pairs: Pairs) -> Ints32:
    """For each of `count` numbers the one that stays in its place: itself, or a better one similar to it.

    Args:
        pairs: each in both directions, ordered by the rank of the first, the best first, then of the second.
    """
    kept_for = np.full(count, -1, np.int32)
    for source, target in pairs:
        _take_stars(source, target, kept_for)
    return np.where(kept_for < 0, np.arange(count, dtype=np.int32), kept_for)


@compiled_after(2 * _COMPILED_FROM)
def _take_stars(source: Any, target: Any, kept_for: Any) -> None:
    """A source that nobody replaced replaces its targets."""
    for n in range(source.shape[0]):
        s, t = source[n], target[n]
        if kept_for[s] < 0:
            kept_for[s] = s
        if kept_for[s] == s and kept_for[t] < 0:
            kept_for[t] = s
