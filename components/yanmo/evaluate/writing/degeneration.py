"""Signs of a model that has stopped writing: loops, little variety, no end, the wrong genre."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from yanmo.evaluate.baselines.ngram import NgramModel
from yanmo.evaluate.documents.reading import genre_order

_LONGEST_BLOCK = 20
_LEAST_REPEATS = 3
_LEAST_CHARACTERS = 8
"""A loop is a block of at most 20 characters written three times or more without a break, eight characters in
all: 悠悠悠 is verse, and 泛泛 is language."""
_JUDGED = 100
"""Characters of a text by which its genre is judged: about as many as a sample has."""
_JUDGE_CHARACTERS = 1_000_000
"""Training characters of each genre that the judge learns from, at most."""
_ORDER = 3


def has_loop(text: str) -> bool:
    """Return whether some block of the text is repeated at once."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    for block in range(1, min(_LONGEST_BLOCK, len(codes) // _LEAST_REPEATS) + 1):
        needed = max(block * _LEAST_REPEATS, _LEAST_CHARACTERS) - block
        same = codes[block:] == codes[:-block]
        ends = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
        if np.diff(ends).max() - 1 >= needed:
            return True
    return False


def distinct(texts: Sequence[str], length: int) -> float | None:
    """Different runs of `length` characters over all of the texts, as a share of all runs."""
    runs = [text[i : i + length] for text in texts for i in range(len(text) - length + 1)]
    return round(len(set(runs)) / len(runs), 4) if runs else None


def variety(texts: Sequence[str], ended: Sequence[bool]) -> dict[str, Any]:
    """Metrics of the texts of one genre, JSON values only."""
    return {
        "texts": len(texts),
        "characters": sum(map(len, texts)),
        "empty": _mean([not text for text in texts]),
        "ended": _mean(ended),
        "loops": _mean([has_loop(text) for text in texts]),
        "repeated_lines": _repeated_lines(texts),
        **{f"distinct_{n}": distinct(texts, n) for n in (1, 2, 3)},
    }


def _mean(found: Sequence[bool]) -> float | None:
    return round(sum(found) / len(found), 4) if found else None


def _repeated_lines(texts: Sequence[str]) -> float | None:
    """Lines that occur earlier in the same text, as a share of all lines."""
    lines = [[line for line in text.split("\n") if line] for text in texts]
    total = sum(map(len, lines))
    return round(sum(len(each) - len(set(each)) for each in lines) / total, 4) if total else None


def cut_alike(originals: Sequence[str], texts: Sequence[str]) -> list[str]:
    """As many originals as there are texts, each cut to its text's length: distinct runs depend on both."""
    return [original[: len(text)] for original, text in zip(originals, texts, strict=False)]


class GenreJudge:
    """Names the genre that a text looks like: the one whose character 3-gram needs the fewest bits."""

    def __init__(self, training: Mapping[str, Sequence[str]]) -> None:
        self.genres = sorted(training, key=genre_order)
        self._models = [NgramModel.train(_at_most(training[genre]), _ORDER) for genre in self.genres]

    def genres_of(self, texts: Sequence[str]) -> list[str]:
        """The likeliest genre of each text, by its first characters."""
        begun = [text[:_JUDGED] for text in texts]
        if not begun:
            return []
        bits = np.stack([model.document_bits(begun) for model in self._models])
        return [self.genres[i] for i in bits.argmin(axis=0)]


def _at_most(texts: Sequence[str]) -> list[str]:
    chosen, characters = [], 0
    for text in texts:
        chosen.append(text)
        characters += len(text)
        if characters >= _JUDGE_CHARACTERS:
            break
    return chosen
