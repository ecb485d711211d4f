"""Shared runs against a slow search with strings."""

import random

import pytest

from yanmo.evaluate.documents.reading import TrainingDocument
from yanmo.evaluate.writing import copies as module
from yanmo.evaluate.writing.copies import find_copies, nearest
from yanmo.evaluate.writing.windows import Windows, han_codes

HAN = "明月几时有把酒问青天"


def sources(texts):
    return [TrainingDocument(f"{i:03d}", "诗", f"t{i}", text) for i, text in enumerate(texts)]


def random_texts(seed, number, letters=HAN, longest=40):
    draw = random.Random(seed)
    return ["".join(draw.choices(letters + "，。\n", k=draw.randrange(longest))) for _ in range(number)]


def han(text):
    return "".join(c for c in text if "\u4e00" <= c <= "\u9fff")


def slow(text, training, length):
    mine, theirs = han(text), [han(t) for t in training]
    windows = [mine[i : i + length] for i in range(len(mine) - length + 1)]
    copied = [any(w in t for t in theirs) for w in windows]
    runs = (
        j - i
        for i in range(len(mine))
        for j in range(i, len(mine) + 1)
        if any(mine[i:j] in t for t in theirs)
    )
    longest = max(runs, default=0)
    covered = {i + k for i, found in enumerate(copied) if found for k in range(length)}
    return len(windows), sum(copied), longest if longest >= length else 0, len(covered), len(mine)


@pytest.mark.parametrize("pairs", [2_000_000, 5])
@pytest.mark.parametrize("length", [2, 3, 5])
def test_copies_are_those_of_a_slow_search_however_the_work_is_cut(length, pairs, monkeypatch):
    monkeypatch.setattr(module, "_PAIRS", pairs)
    texts, training = [*random_texts(1, 12), "", "明", "月" * 30], [*random_texts(2, 40), "月" * 50, ""]
    batches = [sources(training[:7]), [], sources(training[7:])]
    found = find_copies(texts, batches, length)
    rows = zip(found.windows, found.copied, found.longest, found.covered, found.characters, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [slow(text, training, length) for text in texts]


def test_windows_that_share_a_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(
        "yanmo.evaluate.writing.windows._BASES", (0, 0x9E3779B97F4A7C15)
    )  # 0: all windows collide
    found = find_copies(["明月几时"], [sources(["明月青天几时"])], 2)
    assert found.copied.tolist() == [2]
    monkeypatch.setattr("yanmo.evaluate.writing.windows._BASES", (0,))
    with pytest.raises(ValueError, match="share a hash"):
        Windows(["明月几时"], 2)


def test_only_han_characters_count_rare_planes_too():
    codes, owner = han_codes(["a明，\n𠀀3", "", "〇"])
    assert "".join(map(chr, codes)) == "明𠀀〇"
    assert owner.tolist() == [0, 0, 2]


def test_the_nearest_document_is_the_copy_and_ties_go_to_the_smaller_id():
    training = sources(["把酒问青天", "明月几时有", "明月几时有，\n", "把酒问明月几时有不知天上宫阙"])
    copy, stranger = nearest(["明月几时有。", "春江潮水"], [training[2:], training[:2]])
    assert copy == {"id": "001", "genre": "诗", "title": "t1", "likeness": 1.0, "text": "明月几时有"}
    assert stranger is None
