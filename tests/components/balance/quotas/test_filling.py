from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.balance.quotas.filling import best_subset
from yanmo.balance.quotas.filling import choose as choose_of_classes
from yanmo.engine.sql import Tables


def choose(sizes: np.ndarray, target: int) -> np.ndarray:
    """The documents of one class that are taken, by number, rising."""
    return choose_each({"class": (sizes, target)})["class"]


def choose_each(classes: dict[str, tuple[np.ndarray, int]]) -> dict[str, np.ndarray]:
    """Class -> the documents that are taken, by number, rising."""
    tables = Tables()
    tables.run("create table drawn (class varchar, number bigint, units bigint, filled bigint)")
    for name, (sizes, _) in classes.items():
        names, numbers = np.repeat(np.array([name], object), len(sizes)), np.arange(len(sizes))
        tables.add("one", **{"class": names}, number=numbers, units=sizes, filled=np.cumsum(sizes))
        tables.run("insert into drawn from one")
    tables.run("create table goals (class varchar, target bigint)")
    for name, (_, target) in classes.items():
        tables.run("insert into goals values ($name, $target)", name=name, target=target)
    choose_of_classes(tables)
    taken = {
        name: tables.table("select number from taken where class = $name order by number", name=name)
        for name in classes
    }
    return {name: found["number"].to_numpy() for name, found in taken.items()}


SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=10)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SIZES, st.integers(0, 200))
def test_the_subset_comes_as_near_from_below_as_any(sizes: list[int], target: int) -> None:
    chosen = best_subset(sizes, target)
    assert len(set(chosen)) == len(chosen)
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


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        SIZES.map(np.array),
        st.lists(st.integers(10**6, 4 * 10**6), min_size=15, max_size=30).map(np.array),
        st.builds(_drawn, st.sampled_from(KINDS.split(", ")), st.sampled_from([1000, 60_000])),
    ),
    st.floats(0, 1.1),
)
def test_what_is_missing_is_less_than_any_document_that_is_left(sizes: np.ndarray, share: float) -> None:
    target = int(sizes.sum() * share)
    chosen = choose(sizes, target)
    assert (np.diff(chosen) > 0).all() and chosen.dtype.kind == "i"
    missing = target - int(sizes[chosen].sum())
    left = np.delete(sizes, chosen)
    assert missing >= 0 and (not len(left) or missing < left.min())


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(1, 400), min_size=1, max_size=90), st.floats(0, 1)), max_size=6)
)
def test_of_many_classes_each_is_filled_as_it_would_be_alone(classes: list[tuple[list[int], float]]) -> None:
    given_ = {f"诗/{i}": (np.array(s), int(sum(s) * share)) for i, (s, share) in enumerate(classes)}
    found = choose_each(given_)
    assert {name: chosen.tolist() for name, chosen in found.items()} == {
        name: choose(*one).tolist() for name, one in given_.items()
    }
