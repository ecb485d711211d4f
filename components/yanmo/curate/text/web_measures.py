"""What FineWeb-2's web filters measure in a text; see `filter_sets` for their source.

Measured on normalized text: simplified, without empty lines. Stop words are normalized like the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from yanmo.curate.text.boilerplate import boilerplate_share
from yanmo.curate.text.filter_sets import CLASSICAL_STOP_WORDS, MODERN_STOP_WORDS
from yanmo.curate.text.normalize import normalize
from yanmo.curate.text.repetition import REPEATED_SIZES, TOP_SIZES, repetition
from yanmo.curate.text.simplified import code_points

_LINE_ENDS = tuple("。！？.!?．｡")
"""The marks of datatrove's TERMINAL_PUNCTUATION that Chinese text has."""
_BULLETS = ("•", "·", "●", "○", "■", "▪", "-", "*")
_ELLIPSES = ("…", "...", "。。。")


def web_measures(text: str, name: str) -> dict[str, float]:
    """Filter -> what it measures in `text`, for the set of filters called `name`."""
    lines = text.split("\n")
    words = _words(text, name)
    if not words:
        return {}
    result = {**_repetition(text, words), **_lines(text, lines), **_of_words(text, words, _stop_words(name))}
    result["line_breaks"] = (len(lines) - 1) / len(words)
    result["boilerplate"] = boilerplate_share(lines)
    return result


def _words(text: str, name: str) -> Sequence[str]:
    """jieba's words of modern text, characters of any other; without white space."""
    if name != "modern":
        return text.replace("\n", "").replace(" ", "")
    return [word for word in _jieba().cut(text) if not word.isspace()]


@lru_cache(maxsize=1)
def _jieba() -> Any:
    import rjieba  # 0.1 s for its dictionary, and only needed for modern text

    return rjieba


@lru_cache(maxsize=4)
def _stop_words(name: str) -> frozenset[str]:
    words = MODERN_STOP_WORDS if name == "modern" else CLASSICAL_STOP_WORDS
    return frozenset(normalize(words).texts)


def _repetition(text: str, words: Sequence[str]) -> dict[str, float]:
    if isinstance(words, str):
        numbers, lengths = code_points(words), np.ones(len(words), dtype=np.int64)
    else:
        known: dict[str, int] = {}
        numbers = np.array([known.setdefault(word, len(known)) for word in words], dtype=np.int64)
        lengths = np.array([len(word) for word in words], dtype=np.int64)
    top, repeated = repetition(numbers.astype(np.int64), lengths)
    shares = {f"top_{n}_grams": c / len(text) for n, c in zip(TOP_SIZES, top.tolist(), strict=True)}
    again = zip(REPEATED_SIZES, repeated.tolist(), strict=True)
    return shares | {f"repeated_{n}_grams": c / len(text) for n, c in again}


def _lines(text: str, lines: list[str]) -> dict[str, float]:
    seen: set[str] = set()
    again = [line for line in lines if line in seen or seen.add(line)]  # type: ignore[func-returns-value]
    return {
        "repeated_lines": len(again) / len(lines),
        "repeated_line_characters": sum(map(len, again)) / max(len(text) - len(lines) + 1, 1),
        "line_ends": sum(line.endswith(_LINE_ENDS) for line in lines) / len(lines),
        "bullets": sum(line.startswith(_BULLETS) for line in lines) / len(lines),
        "ellipsis_lines": sum(line.endswith(_ELLIPSES) for line in lines) / len(lines),
    }


def _of_words(text: str, words: Sequence[str], stop_words: frozenset[str]) -> dict[str, float]:
    plain = [word for word in words if word.isalnum() or _has(str.isalnum, word)]
    letters = sum(map(str.isalpha, words))
    if not isinstance(words, str):
        letters = sum(word.isalpha() or _has(str.isalpha, word) for word in words)
    average = sum(map(len, plain)) / max(len(plain), 1)
    return {
        "few_words": len(plain),
        "many_words": len(plain),
        "short_words": average,
        "long_words": average,
        "hashes": text.count("#") / len(words),
        "ellipses": sum(map(text.count, _ELLIPSES)) / len(words),
        "letters": letters / len(words),
        "stop_words": len(stop_words.intersection(words)),
    }


def _has(is_kind: Callable[[str], bool], word: str) -> bool:
    return len(word) > 1 and any(map(is_kind, word))
