from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.curate.plan import Candidates, SplitSize, drop_copies, hold_out


def candidates(rows: list[dict[str, Any]]) -> Candidates:
    return Candidates(
        file=np.zeros(len(rows), dtype=np.int64),
        row=np.arange(len(rows)),
        id=np.array([r["id"] for r in rows], dtype=object),
        cluster=np.array([r["cluster"] for r in rows], dtype="S"),
        whole=np.array([r.get("whole", r["id"]) for r in rows], dtype="S"),
        genre=np.array([r.get("genre", "诗") for r in rows], dtype=object),
        characters=np.array([r.get("characters", 20) for r in rows]),
        marks=np.array([r["marks"] for r in rows]),
    )


ROWS = [
    {"id": "a1", "cluster": "c1", "marks": 0},
    {"id": "a9", "cluster": "c1", "marks": 7},
    {"id": "a2", "cluster": "c1", "marks": 7},
    {"id": "b1", "cluster": "c0", "marks": 1},
    {"id": "a2", "cluster": "c1", "marks": 7, "whole": "a1"},
]


@pytest.mark.parametrize("seed", range(5))
def test_the_most_punctuated_copy_stays_whatever_the_order(seed: int) -> None:
    rows = random.Random(seed).sample(ROWS, len(ROWS))
    table = candidates(rows)
    copies = drop_copies(table)
    kept = [(table.id[i], table.whole[i].decode()) for i in copies.kept]
    assert kept == [("b1", "b1"), ("a2", "a1")]
    assert copies.sizes.tolist() == [1, 4]
    assert sorted(table.id[i] for i in copies.dropped) == ["a1", "a2", "a9"]
    assert copies.dropped_of.tolist() == [1, 1, 1]


SIZES = [
    SplitSize(characters=400, share=0.1, min_documents=3),
    SplitSize(characters=100, share=0.03, min_documents=3),
]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("诗词文"), st.integers(1, 300)), min_size=1, max_size=300))
def test_held_out_splits_are_apart_and_within_their_budgets(rows: list[tuple[str, int]]) -> None:
    genre = np.array([g for g, _ in rows], dtype=object)
    characters = np.array([c for _, c in rows])
    splits = hold_out(genre, characters, SIZES)
    assert not set(splits[0].tolist()) & set(splits[1].tolist())
    for size, split in zip(SIZES, splits, strict=True):
        for name in set(genre.tolist()):
            chosen = characters[split][genre[split] == name]
            number = int((genre == name).sum())
            least = min(size.min_documents, number // 5)
            budget = min(size.characters, size.share * characters[genre == name].sum())
            assert least <= len(chosen) <= number
            assert len(chosen) == least or chosen.sum() <= budget


def test_new_text_does_not_move_old_documents_between_splits_of_a_full_genre() -> None:
    generator = np.random.default_rng(0)
    characters = generator.integers(5, 40, 2000)
    genre = np.full(2000, "诗", dtype=object)
    before = hold_out(genre, characters, SIZES)[0]
    more = hold_out(np.append(genre, genre), np.append(characters, characters), SIZES)[0]
    assert more.tolist() == before.tolist()  # a prefix of the order of digests, and the budget was full


def test_one_long_book_is_not_the_split() -> None:
    characters = np.array([5000, *[20] * 300])
    genre = np.full(301, "文", dtype=object)
    test, valid = hold_out(genre, characters, SIZES)
    assert 0 not in test and 0 not in valid
    assert (characters[test].sum(), characters[valid].sum()) == (400, 100)


def test_a_genre_of_books_still_gets_its_documents() -> None:
    test, valid = hold_out(np.full(20, "说", dtype=object), np.full(20, 9000), SIZES)
    assert (len(test), len(valid)) == (3, 3)
