from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from yanmo.balance.quotas.drawn_order import drawn_order, first_words, order_of
from yanmo.balance.quotas.exact import best_subset, choose

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
    chosen = choose(np.array(sizes), target).positions
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    sums = (sum(c) for n in range(len(sizes) + 1) for c in itertools.combinations(sizes, n))
    assert sum(sizes[i] for i in chosen) == max(s for s in sums if s <= target)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.5, 0.97, 0.9999])
@pytest.mark.parametrize("typical", [(24, 64), (300, 3000), (1000, 90_000)])
def test_large_genres_are_met_to_the_character(share: float, typical: tuple[int, int]) -> None:
    sizes = np.random.default_rng(0).integers(*typical, 20_000)
    target = int(sizes.sum() * share)
    assert sizes[choose(sizes, target).positions].sum() == target


def test_most_documents_are_taken_in_the_order_given() -> None:
    sizes = np.random.default_rng(0).integers(20, 80, 10_000)
    chosen = choose(sizes, 200_000).positions
    number = len(chosen)
    assert (chosen[: number - 60] == np.arange(number - 60)).all()


def test_verses_of_one_length_come_as_near_as_their_length_allows() -> None:
    sizes = np.full(500, 24)
    assert sizes[choose(sizes, 1000).positions].sum() == 984


def test_the_drawn_order_belongs_to_ids_and_seed() -> None:
    ids = [f"{n:064x}" for n in range(50)]

    def drawn(ids: list[str], seed: int) -> list[str]:
        order = drawn_order(lambda some: [ids[i] for i in some], len(ids), seed)
        return [ids[i] for i in order]

    assert drawn(ids[::-1], 0) == drawn(ids, 0) != drawn(ids, 1)
    assert drawn(ids, 0) == sorted(ids, key=lambda id: hashlib.sha256(f"0\0{id}".encode()).digest())


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.lists(st.integers(1, 1_000_000), min_size=1, max_size=9),
        st.lists(st.sampled_from([6, 10, 15, 100, 1000]), min_size=1, max_size=9),
        st.lists(st.integers(1, 4), min_size=1, max_size=9).map(lambda sizes: [7 * size for size in sizes]),
    ),
    st.floats(0, 1.2),
)
def test_the_nearest_sums_are_found_and_known_to_be(sizes: list[int], share: float) -> None:
    target = int(sum(sizes) * share)
    found = choose(np.array(sizes), target)
    sums = {sum(c) for n in range(len(sizes) + 1) for c in itertools.combinations(sizes, n)}
    assert found.units == sum(sizes[i] for i in found.positions) == max(s for s in sums if s <= target)
    assert found.is_best
    if found.units != target:
        assert found.above == min((s for s in sums if s > target), default=None)


def _drawn(kind: str, number: int) -> np.ndarray:
    """Sizes of many documents."""
    rng = np.random.default_rng(number)
    if kind == "ones":
        return np.ones(number, np.int64)
    if kind == "equal":
        return np.full(number, 24)
    if kind == "two sizes":
        return rng.choice([7, 11], number)
    if kind == "two large sizes":
        return rng.choice([999_999, 1_000_000], number)
    if kind == "verse":
        return rng.choice([20, 28, 40, 56], number)
    if kind == "very short":
        return rng.integers(1, 9, number)
    if kind == "text":
        return np.maximum(1, rng.lognormal(5, 1.2, number).astype(np.int64))
    if kind == "even":
        return 2 * np.maximum(1, rng.lognormal(5, 1.2, number).astype(np.int64))
    if kind == "to a million":
        return rng.integers(1, 1_000_000, number)
    sizes = np.full(number, 20)  # outliers
    sizes[::1000] = 1_000_001
    return sizes


KINDS = "ones, equal, two sizes, two large sizes, verse, very short, text, even, to a million, outliers"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(KINDS.split(", ")), st.sampled_from([1000, 60_000]), st.floats(0, 1.1))
def test_many_documents_of_any_kind_are_met_or_it_is_known_why_not(
    kind: str, number: int, share: float
) -> None:
    sizes = _drawn(kind, number)
    target = int(sizes.sum() * share)
    found = choose(sizes, target)
    assert len(np.unique(found.positions)) == len(found.positions)
    assert found.units == sizes[found.positions].sum() <= target
    assert found.is_best
    unit, goal = int(np.gcd.reduce(sizes)), min(target, int(sizes.sum()))
    if 0.01 < share < 0.99 and kind not in ("outliers", "two large sizes"):
        assert found.units == goal // unit * unit


@pytest.mark.parametrize("number", [513, 60_000, 1_000_000])
def test_documents_are_met_to_the_document(number: int) -> None:
    for target in (0, 1, number // 2, number - 10, number - 1, number, 3 * number):
        assert len(choose(np.ones(number, np.int64), target).positions) == min(target, number)


def _best_sum(sizes: np.ndarray, target: int) -> int:
    """The largest sum not above the target, from the bits of all sums: slow, and sure."""
    reachable, within = 1, (1 << (target + 1)) - 1
    for size, number in zip(*(each.tolist() for each in np.unique(sizes, return_counts=True)), strict=True):
        part = 1
        while number > 0:
            reachable |= reachable << size * min(part, number) & within
            number, part = number - part, part * 2
    return reachable.bit_length() - 1


def _around(k: int, around: int, spread: int, number: int, evenness: float, seed: int) -> np.ndarray:
    """So many documents of at most k sizes from `around` to `around + spread`."""
    rng = np.random.default_rng(seed)
    different = around + rng.choice(spread + 1, min(k, spread + 1), replace=False)
    return rng.choice(different, number, p=rng.dirichlet(np.full(len(different), evenness)))


SHARES = st.one_of(st.floats(0, 1), st.sampled_from([1e-4, 1e-3, 0.999, 0.9999]))
AROUND = st.tuples(
    st.one_of(st.integers(3, 6), st.integers(3, 60)),
    st.floats(0, 6).map(lambda digits: int(10**digits)),  # around
    st.floats(0, 1),  # spread, as a power of `around`
    st.sampled_from([0.3, 1.0, 100.0]),
    st.integers(0, 2**32),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(AROUND, st.floats(2, 4).map(lambda digits: int(10**digits)), SHARES)
def test_k_sizes_around_one_come_as_near_as_the_sums_of_all_allow(
    drawn: tuple[int, int, float, float, int], number: int, share: float
) -> None:
    """Sums of the whole text would take too many bits: documents of large sizes are fewer here."""
    k, around, power, evenness, seed = drawn
    number = max(100, min(number, 5_000_000 // around))
    around = min(around, 5_000_000 // number)
    sizes = _around(k, around, 2 + int(around**power), number, evenness, seed)
    target = int(sizes.sum() * share)
    found = choose(sizes, target)
    assert found.units == sizes[found.positions].sum() == _best_sum(sizes, target)
    assert len(np.unique(found.positions)) == len(found.positions)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(AROUND, st.sampled_from([10_000, 100_000, 1_000_000]), st.floats(0.02, 0.98))
@example((11, 31622, 0.25, 0.3, 5), 10_000, 0.890625)  # only the ends have documents left
def test_many_documents_of_k_sizes_hold_every_quota_that_counting_allows(
    drawn: tuple[int, int, float, float, int], number: int, share: float
) -> None:
    """m documents of sizes s, s + e1, s + e2 ... hold m * s and every multiple of the differences' divisor.

    That is so between the least and the most that m documents hold, but for a margin at both ends: exchanges
    of one size for another, of which there are many, give all multiples of the divisor.
    """
    k, around, power, _, seed = drawn
    sizes = _around(k, around, 2 + int(min(around**power, number / 100)), number, 100.0, seed)
    target = int(sizes.sum() * share)
    found = choose(sizes, target)
    assert found.units == sizes[found.positions].sum() <= target
    ends = np.sort(sizes)
    base, spread = int(ends[0]), int(ends[-1] - ends[0])
    divisor = int(np.gcd.reduce(np.unique(sizes) - base))
    least, most = np.cumsum(ends) + spread**2, np.cumsum(ends[::-1]) - spread**2
    numbers = 1 + np.flatnonzero((least <= target) & (target <= most))
    if divisor and ((target - numbers * base) % divisor == 0).any():
        assert found.units == target


@pytest.mark.parametrize("number", [60_000, 1_000_000])
@pytest.mark.parametrize("sizes", [(9_989, 10_000, 10_011), (29_989, 30_000, 30_011), (7, 999_983, 10**6)])
def test_three_large_sizes_meet_a_quota_to_the_character(number: int, sizes: tuple[int, ...]) -> None:
    drawn = np.random.default_rng(0).choice(sizes, number)
    target = int(drawn.sum() * 0.37)
    assert choose(drawn, target).units == target


def test_between_two_numbers_of_nearly_equal_documents_the_nearest_sums_are_known() -> None:
    sizes = np.random.default_rng(0).choice([10**6 - 7, 10**6 - 1, 10**6], 10_000)
    found = choose(sizes, 3 * 10**9 + 5)
    assert (found.units, found.is_best) == (3 * 10**9, True)
    assert found.above == np.sort(sizes)[:3001].sum()


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(10**6, 4 * 10**6), min_size=15, max_size=30), st.floats(0, 1))
def test_what_was_not_decided_is_not_called_the_best(sizes: list[int], share: float) -> None:
    target = int(sum(sizes) * share)
    found = choose(np.array(sizes), target)
    best = _best_sum(np.array(sizes), target)
    assert found.units <= best and (found.units == best or not found.is_best)
    assert found.above is None or found.above > target


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_digests_are_ordered_by_all_their_bytes_though_the_first_ones_are_equal(
    numbers: list[tuple[int, int, int]],
) -> None:
    whole = [bytes([a, *[7] * 6, b, *[7] * 23, c]) for a, b, c in numbers]
    digests = np.frombuffer(b"".join(whole), np.uint8).reshape(-1, 32)
    asked: list[int] = []

    def rest(positions: np.ndarray) -> np.ndarray:
        asked.extend(positions.tolist())
        return digests[positions]

    order = order_of(first_words(digests), rest).tolist()
    assert order == sorted(range(len(whole)), key=lambda i: (whole[i], i))
    firsts = [one[:8] for one in whole]
    assert sorted(asked) == [i for i, one in enumerate(firsts) if firsts.count(one) > 1]
