from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.curate.duplicates.clusters import components, keep_best

PAIRS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)).filter(lambda p: p[0] < p[1]), max_size=30)


def edges(pairs: list[tuple[int, int]]) -> list[tuple[Any, Any]]:
    """The pairs in parts of three."""
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return [(array[i : i + 3, 0], array[i : i + 3, 1]) for i in range(0, len(array), 3)]


def by_rank(pairs: list[tuple[int, int]], rank: Any) -> list[tuple[Any, Any]]:
    """The pairs in both directions, in the order in which `keep_best` takes them."""
    both = [*pairs, *((b, a) for a, b in pairs)]
    return edges(sorted(both, key=lambda pair: (rank[pair[0]], rank[pair[1]])))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PAIRS, st.permutations(range(20)))
def test_clusters_are_connected_components_named_by_their_smallest_member(
    pairs: list[tuple[int, int]], order: list[int]
) -> None:
    found = components(20, edges(pairs))
    groups = [{i} for i in range(20)]
    for a, b in pairs:
        joined = groups[a] | groups[b]
        for member in joined:
            groups[member] = joined
    assert found.tolist() == [min(group) for group in groups]
    shuffled = sorted(pairs, key=lambda p: order[p[0]])
    assert components(20, edges(shuffled)).tolist() == found.tolist()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PAIRS, st.permutations(range(20)))
def test_a_document_goes_only_for_a_better_one_that_is_similar_and_stays(
    pairs: list[tuple[int, int]], order: list[int]
) -> None:
    rank = np.array(order)
    kept_for = keep_best(20, by_rank(pairs, rank))
    similar = {(a, b) for a, b in pairs} | {(b, a) for a, b in pairs}
    for position, stays in enumerate(kept_for.tolist()):
        assert kept_for[stays] == stays
        if stays != position:
            assert (position, stays) in similar and rank[stays] < rank[position]
    kept = [p for p in range(20) if kept_for[p] == p]
    assert not [(a, b) for a in kept for b in kept if (a, b) in similar]


def test_a_chain_of_small_changes_keeps_its_far_ends() -> None:
    chain = [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert components(5, edges(chain)).tolist() == [0] * 5
    assert keep_best(5, by_rank(chain, range(5))).tolist() == [0, 0, 2, 2, 4]


@pytest.mark.parametrize("count", [0, 3])
def test_without_pairs_every_document_is_its_own_cluster(count: int) -> None:
    assert components(count, []).tolist() == list(range(count))
    assert keep_best(count, []).tolist() == list(range(count))
