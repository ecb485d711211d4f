"""From pairs of similar documents to clusters, and to the copies that stay.

A cluster is a connected component: what the split must not tear apart. A document is dropped only in favour
of a better one that is similar to it itself, so a chain of small changes does not swallow its far ends: one
cluster may keep several documents. Alternative not taken: one document per component, as in datatrove.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.jit import Compiled, compiled
from yanmo.curate.duplicates.near_duplicates import Edges

Ints32 = npt.NDArray[np.int32]


def components(count: int, edges: Edges) -> Ints32:
    """For each of `count` positions the smallest position it is connected with."""
    parent = np.arange(count, dtype=np.int32)
    _loop(_join, edges)(parent, edges.first, edges.second)
    while not np.array_equal(root := parent[parent], parent):
        parent = root
    return parent


_COMPILED_FROM = 200_000
"""Pairs from which on it pays to load numba (1.2 s of CPU)."""


def _loop(function: Compiled[Any, None], edges: Edges) -> Callable[..., None]:
    return function if len(edges.first) > _COMPILED_FROM else function.python


@compiled
def _join(parent: Any, first: Any, second: Any) -> None:
    """Union by the smaller position, with path halving."""
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


def keep_best(rank: npt.NDArray[Any], edges: Edges) -> Ints32:
    """For each position the one that stays in its place: itself, or a better one similar to it.

    Args:
        rank: of each position, 0 the best; every position is looked at in this order.
    """
    both = np.concatenate((edges.first, edges.second)), np.concatenate((edges.second, edges.first))
    order = np.lexsort((rank[both[1]], rank[both[0]]))
    kept_for = np.full(len(rank), -1, dtype=np.int32)
    _loop(_take_stars, edges)(both[0][order], both[1][order], kept_for)
    np.copyto(kept_for, np.arange(len(rank), dtype=np.int32), where=kept_for < 0)
    return kept_for


@compiled
def _take_stars(source: Any, target: Any, kept_for: Any) -> None:
    """Edges by rank of their source: a source that nobody replaced replaces its targets."""
    for n in range(source.shape[0]):
        s, t = source[n], target[n]
        if kept_for[s] < 0:
            kept_for[s] = s
        if kept_for[s] == s and kept_for[t] < 0:
            kept_for[t] = s
