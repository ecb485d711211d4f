from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.curate.text.repetition import REPEATED_SIZES, TOP_SIZES, _count, repetition


def reference(words: list[str]) -> tuple[list[int], list[int]]:
    """The measures over strings, as datatrove's GopherRepetitionFilter defines them."""
    tops = []
    for n in TOP_SIZES:
        grams = Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
        tops.append(len(grams.most_common(1)[0][0]) * grams.most_common(1)[0][1] if grams else 0)
    repeated = []
    for n in REPEATED_SIZES:
        seen, start, total = set(), 0, 0
        while start + n <= len(words):
            gram = tuple(words[start : start + n])
            total += sum(map(len, gram)) if gram in seen else 0
            start += n if gram in seen else 1
            seen.add(gram)
        repeated.append(total)
    return tops, repeated


def measured(words: list[str]) -> tuple[list[int], list[int]]:
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(w, len(known)) for w in words], dtype=np.int64)
    top, repeated = repetition(numbers, np.array([len(w) for w in words], dtype=np.int64))
    return top.tolist(), repeated.tolist()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["之", "也", "天地", "玄黄", "不亦乐", "x"]), max_size=80))
def test_the_compiled_count_equals_counting_strings(words: list[str]) -> None:
    assert measured(words) == reference(words)


def test_real_prose_counts_alike(lines: list[dict[str, str]]) -> None:
    for line in lines:
        if line["genre"] == "文":
            assert measured(list(line["text"][:3000])) == reference(list(line["text"][:3000]))


@pytest.mark.parametrize("text", ["", "之", "之乎者也" * 30])
def test_plain_python_gives_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = measured(list(text))
    monkeypatch.setattr("yanmo.curate.text.repetition._count", _count.python)
    assert measured(list(text)) == compiled == reference(list(text))
