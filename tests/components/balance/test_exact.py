from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.balance.exact import best_subset, choose, drawn_order

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=10)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SIZES, st.integers(0, 200))
def test_the_subset_comes_as_near_from_below_as_any(sizes: list[int], target: int) -> None:
    chosen = best_subset(sizes, target)
    assert len(set(chosen)) == len(chosen)
    sums = (sum(c) for n in range(len(sizes) + 1) for c in itertools.combinations(sizes, n))
    assert sum(sizes[i] for i in chosen) == max(s for s in sums if s <= target)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SIZES, st.integers(0, 200))
def test_few_documents_are_chosen_as_near_from_below_as_any(sizes: list[int], target: int) -> None:
    chosen = choose(np.array(sizes), target)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    sums = (sum(c) for n in range(len(sizes) + 1) for c in itertools.combinations(sizes, n))
    assert sum(sizes[i] for i in chosen) == max(s for s in sums if s <= target)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.5, 0.97, 0.9999])
@pytest.mark.parametrize("typical", [(24, 64), (300, 3000), (1000, 90_000)])
def test_large_genres_are_met_to_the_character(share: float, typical: tuple[int, int]) -> None:
    sizes = np.random.default_rng(0).integers(*typical, 20_000)
    target = int(sizes.sum() * share)
    assert sizes[choose(sizes, target)].sum() == target


def test_most_documents_are_taken_in_the_order_given() -> None:
    sizes = np.random.default_rng(0).integers(20, 80, 10_000)
    chosen = choose(sizes, 200_000)
    number = len(chosen)
    assert (chosen[: number - 60] == np.arange(number - 60)).all()


def test_verses_of_one_length_come_as_near_as_their_length_allows() -> None:
    sizes = np.full(500, 24)
    assert sizes[choose(sizes, 1000)].sum() == 984


def test_the_drawn_order_belongs_to_ids_and_seed() -> None:
    ids = [f"{n:064x}" for n in range(50)]
    drawn = [ids[i] for i in drawn_order(ids, 0)]
    assert [ids[::-1][i] for i in drawn_order(ids[::-1], 0)] == drawn
    assert [ids[i] for i in drawn_order(ids, 1)] != drawn
    assert sorted(drawn) == ids
