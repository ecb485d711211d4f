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

from yanmo.common.disk_arrays import all_rows, new_array, rows_of, slices, sorted_order, taken
from yanmo.common.jit import Compiled, compiled
from yanmo.curate.duplicates.near_duplicates import Edges

Ints32 = npt.NDArray[np.int32]


def components(count: int, edges: Edges) -> Ints32:
    """For each of `count` positions the smallest position it is connected with."""
    parent = all_rows(count)
    _loop(_join, edges)(parent, edges.first, edges.second)
    for some in slices(count):  # the smaller ones, which a position may name, name their smallest already
        while not np.array_equal(root := parent[parent[some]], parent[some]):
            parent[some] = root
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
    number = len(edges.first)
    source, target = new_array(2 * number, np.int32), new_array(2 * number, np.int32)
    source[:number], source[number:] = edges.first, edges.second
    target[:number], target[number:] = edges.second, edges.first
    order = sorted_order(lambda some: (rank[target[some]], rank[source[some]]), 2 * number)
    kept_for = new_array(len(rank), np.int32)
    kept_for[:] = -1
    _loop(_take_stars, edges)(taken(source, order), taken(target, order), kept_for)
    for some in slices(len(rank)):
        own = rows_of(some)
        np.copyto(kept_for[some], own, where=kept_for[some] < 0)
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
