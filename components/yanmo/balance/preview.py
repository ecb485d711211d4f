"""Originals next to their augmented versions: for `--preview`, and as examples in the report."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np

from yanmo.balance.augmentation.augment import REPEAT, Augmenter
from yanmo.balance.document_table import Rows, TrainFiles

_DRAWN_PER_EXAMPLE = 40
"""Documents drawn for each example: in most short verses there is no word that a rule would change."""


@dataclass(frozen=True)
class Example:
    """A document and its first copy."""

    id: str
    genre: str
    rule: str
    before: str
    after: str


def examples(files: TrainFiles, rows: Rows, augmenter: Augmenter, number: int, seed: int) -> list[Example]:
    """Up to `number` documents that the rules change, from each genre that has rules in turn."""
    by_genre = []
    for code, genre in enumerate(rows.genres):
        if augmenter.rules.of(genre):
            positions = np.flatnonzero(rows.genre == code)
            drawn = positions[rows.drawn(positions, seed)[: number * _DRAWN_PER_EXAMPLE]]
            by_genre.append(_changed(files, rows, augmenter, drawn, number))
    longest = max(map(len, by_genre), default=0)
    return [found[i] for i in range(longest) for found in by_genre if i < len(found)][:number]


def _changed(
    files: TrainFiles, rows: Rows, augmenter: Augmenter, positions: np.ndarray, number: int
) -> list[Example]:
    found: list[tuple[int, Example]] = []
    for places, table in files.chosen(rows, positions, ("id", "text", "genre", "loss_spans")):
        made = augmenter.of_table(table, [1] * table.num_rows)
        texts = zip(*(table[name].to_pylist() for name in ("id", "genre", "text")), strict=True)
        for place, (id, genre, text), one in zip(places.tolist(), texts, made, strict=True):
            if one.rule != REPEAT:
                found.append((place, Example(id, genre, one.rule, text, one.text)))
    return [example for _, example in sorted(found, key=lambda pair: pair[0])[:number]]


def as_text(shown: list[Example], width: int = 240) -> str:
    """The examples for a terminal: both texts, from shortly before the first difference."""
    lines = []
    for number, example in enumerate(shown, 1):
        start = max(0, first_difference(example.before, example.after) - 20)
        lines += [f"{number}. {example.genre}  {example.rule}  {example.id[:16]}"]
        for mark, text in (("-", example.before), ("+", example.after)):
            cut = text[start : start + width].replace("\n", " / ")
            lines.append(
                f"  {mark} {'...' if start else ''}{cut}{'...' if len(text) > start + width else ''}"
            )
    return "\n".join(lines) + "\n"


def first_difference(before: str, after: str) -> int:
    """Index of the first character that differs."""
    pairs = zip(before, after, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))


def marked(before: str, after: str) -> list[tuple[str, str, str]]:
    """Two texts as pieces: (equal, replace, delete or insert; piece of before; piece of after)."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [(kind, before[a:b], after[c:d]) for kind, a, b, c, d in matcher.get_opcodes()]
