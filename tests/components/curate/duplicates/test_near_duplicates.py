from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import damaged, measure_planted, pairs_of_keys, proposed_pairs

from yanmo.curate.duplicates.clusters import keep_best
from yanmo.curate.duplicates.shingle_sets import Sets, similarities
from yanmo.curate.duplicates.shingles import BANDS, band_keys
from yanmo.curate.mapped_texts import comparable
from yanmo.curate.text.normalize import is_han

Run = Callable[..., Any]
Record = dict[str, Any]


def shingles(text: str) -> set[str]:
    han = "".join(c for c in text if is_han(ord(c)))
    return {han[i : i + 4] for i in range(len(han) - 3)}


def jaccard(texts: list[str], pairs: Any) -> Any:
    """The similarity of each pair of texts, (pairs, 2)."""
    sets = Sets.of(texts)
    return similarities(sets.take(pairs[:, 0]), sets.take(pairs[:, 1]))


@pytest.fixture
def texts(lines: list[Record]) -> list[str]:
    """What is compared of the fixture's texts, different from one another."""
    return sorted({t for t in comparable([line["text"] for line in lines], "classical-1+all") if len(t) > 20})


def test_similarities_are_those_of_sets_of_strings(texts: list[str]) -> None:
    both = [*texts[:40], *(damaged(t, i) for i, t in enumerate(texts[:40])), "短", ""]
    pairs = np.array([*itertools.combinations(range(len(both)), 2)])
    sets = [shingles(t) for t in both]
    for pair, value in zip(pairs.tolist(), jaccard(both, pairs).tolist(), strict=True):
        one, other = (sets[i] for i in pair)
        assert value == pytest.approx(len(one & other) / max(len(one | other), 1))


def test_planted_copies_are_found_with_recall_099_and_nothing_else_is(texts: list[str]) -> None:
    measured = measure_planted(texts, 0.5)
    assert measured["planted"] == len(texts) and measured["similar"] > 60
    assert measured["recall"] >= 0.99 and measured["precision"] == 1
    tenths = {t["from"]: t for t in measured["by_similarity"]}
    assert tenths[0.4]["found"] == 0 and tenths[0.8]["found"] == tenths[0.8]["planted"] > 0


def test_bands_propose_pairs_with_the_probability_that_their_docstring_says() -> None:
    generator = random.Random(1)
    texts: list[str] = []
    for number in range(600):
        tenth = 2 if number % 2 else 5
        text = "".join(chr(generator.randrange(0x4E00, 0x9FA5)) for _ in range(103))
        shared = round(100 * 2 * tenth / (10 + tenth))  # of 100 shingles each
        texts += [
            text,
            text[: shared + 3]
            + "".join(chr(generator.randrange(0x4E00, 0x9FA5)) for _ in range(100 - shared)),
        ]
    met = {*map(tuple, proposed_pairs(texts).tolist())}
    proposed = {
        tenth: [(2 * number, 2 * number + 1) in met for number in range(start, 600, 2)]
        for tenth, start in ((5, 0), (2, 1))
    }
    assert np.mean(proposed[5]) == pytest.approx(1 - (1 - 0.5**3) ** 40, abs=0.015)
    assert np.mean(proposed[2]) == pytest.approx(1 - (1 - 0.2**3) ** 40, abs=0.09)


def test_documents_with_one_key_are_compared_with_one_another() -> None:
    keys = np.arange(7 * BANDS, dtype=np.uint32).reshape(BANDS, 7) + 10
    keys[5] = [7, 3, 7, 7, 9, 7, 3]
    found = pairs_of_keys(keys, np.arange(7), np.arange(7)[::-1])
    expected = [[a, b] for group in ([0, 2, 3, 5], [1, 6]) for a in group for b in group if a < b]
    assert found.tolist() == sorted(expected)


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_of_many_documents_with_one_key_each_meets_the_next_two_and_the_best_four(
    data: st.DataObject,
) -> None:
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 23, 24, 25, 40]), min_size=1, max_size=5))
    count = sum(sizes)
    rank = np.array(data.draw(st.permutations(range(count))))
    keys = np.zeros((BANDS, count), np.uint32) + np.arange(count, dtype=np.uint32)
    keys[0] = np.repeat(2**32 - 1 - np.arange(len(sizes)), sizes)
    expected = set()
    for number in range(len(sizes)):
        group = sorted(np.flatnonzero(keys[0] == 2**32 - 1 - number).tolist(), key=lambda i: rank[i])
        for a, b in itertools.combinations(range(len(group)), 2):
            if len(group) <= 24 or b - a <= 2 or a < 4:
                expected.add(tuple(sorted((group[a], group[b]))))
    assert [*map(tuple, pairs_of_keys(keys, np.arange(count), rank).tolist())] == sorted(expected)


def test_of_a_form_letter_one_copy_stays_and_work_is_linear() -> None:
    letter = "敬启者，本店自即日起迁至东门大街，货真价实，童叟无欺，凡我新旧主顾，务祈惠临为荷，谨此周知。"
    texts = [letter[: i % 40] + chr(0x4E00 + i) + letter[i % 40 :] + "客" * (i % 3) for i in range(1500)]
    rank = np.random.default_rng(0).permutation(len(texts))
    keys = band_keys(texts)[0]
    pairs = pairs_of_keys(keys, np.arange(len(texts)), rank)
    assert len(pairs) <= 24 * len(texts) * BANDS / 8
    similar = pairs[jaccard(texts, pairs) >= 0.5]
    both = np.concatenate([similar, similar[:, ::-1]])
    both = both[np.lexsort((rank[both[:, 1]], rank[both[:, 0]]))]
    kept_for = keep_best(len(texts), [(both[:, 0], both[:, 1])])
    left = int((kept_for == np.arange(len(texts))).sum())
    assert left < 15, "most copies must have met the best one"


def test_editions_are_one_across_scripts_punctuation_and_misprints(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Any]
) -> None:
    import opencc

    traditional = opencc.OpenCC("s2t")
    chosen = [r for r in lines if r["genre"] in "文赋" and len(r["text"]) > 200][:20]
    editions = [
        {
            **r,
            "source": "planted",
            "text": traditional.convert(damaged("".join(filter(str.isalpha, r["text"])), 1)),
        }
        for r in chosen
    ]
    curated = curate(write_jsonl("b.jsonl", [*editions, *lines]))
    rows = [r for s in ("train", "valid", "test") for r in curated.rows(s)]
    left = [r for r in rows if r["source"] == "planted"]
    # Where the original has no punctuation worth the name the edition may be the better copy, by length.
    assert all(r["cluster_size"] == 2 for r in left) and len(left) < len(editions) / 2
    found = curated.report()["dropped"]["near_duplicate"]
    assert sum(v["documents"] for v in found.values()) == len(editions)
    table = pq.read_table(curated.output().path("decisions.parquet")).to_pylist()
    dropped = [r for r in table if r["reason"] == "near_duplicate"]
    held = {r["id"] for r in rows} | {r["id"] for r in table}
    assert len(dropped) == len(editions) and all(r["other_id"] in held for r in dropped)


def test_zero_similarity_finds_exact_copies_only(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Any]
) -> None:
    near = [{**r, "text": damaged(r["text"], 0), "source": "near"} for r in lines if r["genre"] == "赋"]
    sources = write_jsonl("a.jsonl", [*lines, *near])
    curated = curate(sources, "--near-duplicate-similarity", "0", "--overlap-characters", "0")
    assert "near_duplicate" not in curated.report()["dropped"]
