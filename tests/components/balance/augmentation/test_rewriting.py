"""What each rule does to real texts, and what it must not do to verse."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import zstandard

from yanmo.balance.augmentation import rewriting
from yanmo.balance.augmentation.rules import AugmentRules, parse_rules
from yanmo.balance.augmentation.synonyms import CLASSICAL_WORDS, Synonyms
from yanmo.chinese.pingshui import rhymes, tones
from yanmo.common.errors import UsageError
from yanmo.curate.text.normalize import normalize
from yanmo.formats.records import GENRE_ALIASES

WORDS = Synonyms.read(CLASSICAL_WORDS)
MARKS = re.compile("[，。！？；、：\n]")


@pytest.fixture(scope="module")
def verses() -> list[str]:
    """诗 and 词 of the bundled corpus in the stage's text form."""
    path = Path(__file__).parents[4] / "corpus" / "small.jsonl.zst"
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        documents = [json.loads(next(lines)) for _ in range(3000)]
    return list(normalize([d["text"] for d in documents if d["genre"] in ("诗", "词")]).texts)


def test_synonyms_in_verse_keep_length_tones_and_every_clause_end(verses: list[str]) -> None:
    changed = 0
    for number, text in enumerate(verses):
        result = rewriting.synonym_in_verse(text, 1.0, Random(number), WORDS)
        assert len(result) == len(text)
        for old, new in zip(text, result, strict=True):
            assert old == new or (tones(old) == tones(new) and tones(old))
        ends = [clause[-1:] for clause in MARKS.split(text)]
        assert [clause[-1:] for clause in MARKS.split(result)] == ends
        changed += result != text
    assert changed > len(verses) / 3


def test_couplets_change_places_only_where_the_tones_agree(verses: list[str]) -> None:
    changed = 0
    for number, text in enumerate(verses):
        result = rewriting.reorder_couplets(text, 1.0, Random(number))
        assert Counter(result) == Counter(text)
        assert result.split("\n")[0] == text.split("\n")[0]
        for old, new in zip(MARKS.split(text), MARKS.split(result), strict=True):
            assert len(old) == len(new)
            governed = {*range(1, len(old), 2), len(old) - 1} if old else set()
            assert all(tones(old[i]) == tones(new[i]) for i in governed)
        changed += result != text
    assert changed > 20


def test_rhymes_of_a_regulated_verse_stay() -> None:
    verse = (
        "寥落古行宫，宫花寂寞红。\n白头宫女在，闲坐说玄宗。\n"
        "烟尘迷古道，霜雪满秋风。\n朱颜春树下，孤坐听寒钟。"
    )
    result = rewriting.reorder_couplets(verse, 1.0, Random(0))
    assert result != verse
    for text in (verse, result):
        ends = [line[-2] for line in text.split("\n")]
        assert all({"上平声一东", "上平声二冬"} & rhymes(end) for end in ends)


def test_prose_clauses_change_places_and_marks_stay() -> None:
    text = "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？"
    assert rewriting.reorder(text, 1.0, Random(0)) == "不亦说乎，学而时习之？不亦乐乎，有朋自远方来？"
    assert rewriting.reorder("子曰：“君子不器，周而不比。”", 1.0, Random(0)).count("“") == 1
    assert rewriting.reorder(text, 0.0, Random(0)) == text


def test_pairs_of_parallel_prose_are_never_parted() -> None:
    pairs = "落霞与孤鹜齐飞，秋水共长天一色；渔舟唱晚，响穷彭蠡之滨。"
    expected = "渔舟唱晚，响穷彭蠡之滨；落霞与孤鹜齐飞，秋水共长天一色。"
    assert rewriting.reorder_pairs(pairs, 1.0, Random(0)) == expected
    assert rewriting.reorder_pairs("甲乙，丙丁，戊己，庚辛。", 1.0, Random(0)) == "戊己，庚辛，甲乙，丙丁。"
    assert rewriting.reorder_pairs("甲乙，丙丁，戊己。", 1.0, Random(0)) == "甲乙，丙丁，戊己。"
    unpunctuated = "原夫陰陽遞運日月分馳星紀之輪還或爽"
    assert rewriting.reorder_pairs(unpunctuated, 1.0, Random(0)) == unpunctuated


def test_deletion_spares_marks_and_the_ends_of_clauses() -> None:
    text = "三人行必有我师焉，择其善者而从之。"
    assert rewriting.delete(text, 1.0, Random(0)) == "三焉，择之。"
    kept = [len(rewriting.delete("天" * 1002, 0.1, Random(i))) for i in range(20)]
    assert 880 < sum(kept) / len(kept) < 920


def test_insertion_follows_the_marks() -> None:
    text = "君子不器。小人比，周矣？"
    found = {rewriting.insert(text, 1.0, Random(i)) for i in range(60)}
    inserted = {c for result in found for c in (Counter(result) - Counter(text))}
    assert inserted <= set("之乎也者而矣") and {"之", "也", "者", "而"} <= inserted
    assert all("也。" not in result or "器也。" in result for result in found)


def test_rules_are_given_per_genre_and_verse_takes_only_what_keeps_its_length() -> None:
    rules = parse_rules("wen:synonym=0.1,*:delete=.05,shi:synonym=0.3,*:reorder=0.2")
    assert rules.of("文") == {"reorder": 0.2, "synonym": 0.1, "delete": 0.05}
    assert rules.of("诗") == {"reorder": 0.2, "synonym": 0.3}
    assert rules.of("词") == {"reorder": 0.2}
    assert parse_rules("synonym=0.1").of("曲") == {"synonym": 0.1}
    assert not parse_rules("") and parse_rules("") == AugmentRules({})
    for written, genre in GENRE_ALIASES.items():
        assert parse_rules(f"{written}:synonym=1").of(genre) == {"synonym": 1.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wen:translate=0.1", "a rule of reorder, synonym, insert"),
        ("wen:synonym=1.1", r"probability \(0 to 1\)"),
        ("wen:synonym", "expected genre:rule=probability"),
        ("shi:delete=0.1", "delete would break the lines of verse"),
        ("词:insert=0.1", "insert would break the lines of verse"),
        ("wen:delete=0.1,文:delete=0.2", "delete is given twice for 文"),
    ],
)
def test_wrong_rules_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_rules(text)
