from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.curate.plan import (
    find_exact_copies,
    name_digests,
    order_of_copies,
    places_of_ids,
    raw_digests,
)
from yanmo.curate.split.hold_out import SplitSize, hold_out


def numbered(rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    """The digests of the Han characters of some documents, and their ranks."""

    def numbers(name: str, default: int) -> Any:
        return np.array([r.get(name, default) for r in rows], dtype=np.int32)

    def digests(name: str) -> Any:
        return np.array([r.get(name, r["id"]) for r in rows], dtype="S16")

    order = order_of_copies(
        ids=np.unique(digests("id"), return_inverse=True)[1].astype(np.int32),
        whole=lambda index: digests("whole")[index],
        marks=numbers("marks", 0),
        units=numbers("units", 20),
        lacunae=numbers("lacunae", 0),
    )
    return digests("cluster"), np.argsort(order).astype(np.int32)


ROWS = [
    {"id": "a1", "cluster": "c1", "marks": 0, "units": 90},
    {"id": "a9", "cluster": "c1", "marks": 7},
    {"id": "a0", "cluster": "c1", "marks": 7, "lacunae": 1},
    {"id": "a2", "cluster": "c1", "marks": 7},
    {"id": "b1", "cluster": "c0", "marks": 1},
    {"id": "a2", "cluster": "c1", "marks": 7, "whole": "a1"},
    {"id": "a3", "cluster": "c1", "marks": 6},
]


@pytest.mark.parametrize("seed", range(5))
def test_the_punctuated_whole_copy_stays_whatever_the_order(seed: int) -> None:
    rows = random.Random(seed).sample(ROWS, len(ROWS))
    copies = find_exact_copies(*numbered(rows))
    kept = [(rows[i]["id"], rows[i].get("whole", rows[i]["id"])) for i in copies.unique]
    assert kept == [("b1", "b1"), ("a2", "a1")]
    assert np.bincount(copies.position).tolist() == [1, 6]
    assert {rows[i]["id"] for i in np.flatnonzero(copies.position == 0)} == {"b1"}


def test_copies_are_ordered_by_punctuation_then_lacunae_then_length_then_marks_then_id() -> None:
    rows = [
        {"id": "bare", "units": 100},
        {"id": "torn", "marks": 5, "lacunae": 2, "units": 50},
        {"id": "short", "marks": 5, "units": 20},
        {"id": "long", "marks": 5, "units": 50},
        {"id": "longer marked", "marks": 6, "units": 50},
        {"id": "also longer", "marks": 6, "units": 50},
    ]
    found = [rows[i]["id"] for i in np.argsort(numbered(rows)[1])]
    assert found == ["also longer", "longer marked", "long", "short", "torn", "bare"]


WORDS = st.sampled_from([b"\0" * 8, b"a" * 7 + b"\0", b"a" * 8, b"b" * 8])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(st.lists(st.tuples(WORDS, WORDS), max_size=12), min_size=1, max_size=3))
def test_ids_are_numbered_in_their_order_and_equal_ones_alike(
    tmp_path: Path, files: list[list[tuple[bytes, bytes]]]
) -> None:
    paths = [tmp_path / f"{number}.parquet" for number in range(len(files))]
    for path, halves in zip(paths, files, strict=True):
        ids = pa.array([(first + second).hex() + "0" * 32 for first, second in halves], pa.string())
        pq.write_table(pa.table({"id": ids}), path)
    halves = [first + second for of_file in files for first, second in of_file]
    ordered = sorted(set(halves))
    assert places_of_ids(paths, len(halves)).tolist() == [ordered.index(half) for half in halves]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 6), max_size=60))
def test_the_order_of_copies_is_that_of_all_keys_in_turn(rows: list[tuple[int, ...]]) -> None:
    ids, whole, marks, units, lacunae, forbidden = (
        np.array([row[i] for row in rows], np.int32) for i in range(6)
    )
    digests = np.array([b"%d" % number for number in whole], "S16")
    order = order_of_copies(
        ids=ids,
        whole=lambda index: digests[index],
        marks=marks,
        units=units * 30,
        lacunae=lacunae,
        forbidden=forbidden > 1,
    )

    def key(i: int) -> tuple[Any, ...]:
        is_bare = marks[i] * 40 < units[i] * 30
        return (forbidden[i] > 1, is_bare, lacunae[i], -units[i], -marks[i], ids[i], whole[i], i)

    assert order.tolist() == sorted(range(len(rows)), key=key)


def test_digests_with_zeros_at_the_end_stay_apart() -> None:
    values = [b"x" * 14 + end for end in (b"\0\0", b"\0\1", b"\1\0", b"ab")]
    found = raw_digests(pa.chunked_array([pa.array(values, pa.binary(16)).slice(1), values[:1]]))
    assert len(np.unique(found)) == 4
    assert found[0].ljust(16, b"\0") == values[1]


def test_unknown_authors_are_no_group() -> None:
    names = pa.chunked_array([["李白", "佚名", ""], ["李白", "杜甫"]])
    found = name_digests(names).tolist()
    assert found[1] == found[2] == b"" and found[0] == found[3] != found[4]


SIZES = [
    SplitSize(characters=400, share=0.1, min_documents=3),
    SplitSize(characters=100, share=0.03, min_documents=3),
]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 300), st.integers(0, 99)), min_size=1, max_size=300)
)
def test_held_out_splits_are_apart_and_within_their_budgets(rows: list[tuple[int, int, int]]) -> None:
    genre, characters, group = (np.array(column) for column in zip(*rows, strict=True))
    splits = hold_out(genre.astype(np.int32), characters.astype(np.int32), group, SIZES)
    assert not set(splits[0].tolist()) & set(splits[1].tolist())
    for size, split in zip(SIZES, splits, strict=True):
        for number in set(genre.tolist()):
            of_genre = split[genre[split] == number]
            units = set(group[of_genre].tolist())
            whole = np.flatnonzero((genre == number) & np.isin(group, list(units)))
            assert of_genre.tolist() == whole.tolist(), "a group is torn apart"
            least = min(size.min_documents, len(set(group[genre == number].tolist())) // 5)
            budget = min(size.characters, size.share * characters[genre == number].sum())
            assert len(units) >= least
            assert len(units) == least or characters[of_genre].sum() <= budget


def hold_out_each(characters: Any) -> list[Any]:
    characters = np.array(characters, dtype=np.int32)
    return hold_out(np.zeros(len(characters), np.int32), characters, np.arange(len(characters)), SIZES)


def test_new_text_does_not_move_old_documents_between_splits_of_a_full_genre() -> None:
    characters = np.random.default_rng(0).integers(5, 40, 2000)
    before = hold_out_each(characters)[0]
    more = hold_out_each(np.append(characters, characters))[0]
    assert more.tolist() == before.tolist()  # a prefix of the order of digests, and the budget was full


def test_one_long_book_is_not_the_split() -> None:
    characters = np.array([5000, *[20] * 300])
    test, valid = hold_out_each(characters)
    assert 0 not in test and 0 not in valid
    assert (characters[test].sum(), characters[valid].sum()) == (400, 100)


def test_a_genre_of_books_still_gets_its_documents() -> None:
    test, valid = hold_out_each([9000] * 20)
    assert (len(test), len(valid)) == (3, 3)
