"""The rules of augmentation for modern text: whole words, in sentences of nothing but Chinese.

A sentence with Latin, digits, brackets or marks of Markdown stays as it is, as do code, addresses, and what
no mark ends (headings, rows of tables). Words are jieba's (rjieba, without its model of unknown words), so
that 大观园 is never cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from yanmo.balance.augmentation.synonyms import Synonyms
from yanmo.chinese.code_spans import is_in, protected_spans

_SENTENCE = re.compile(
    r"(?:\A|(?<=[。！？；])|(?<=\n\n)|(?<=[。！？；”：]\n)|(?<=\n　　))"
    r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af，、：“”‘’]+(?=[。！？；])"
)
_WORD = re.compile(r"[^，、：“”‘’]")
_PARTICLES = "的了着过吗呢吧啊"
Words = list[str]


def in_sentences(text: str, change: Callable[[Words], Words]) -> str:
    """Return the text with each of its Chinese sentences changed, word by word; marks are words, too."""
    import rjieba  # 0.1 s for its dictionary

    parts, end, spans = [], 0, protected_spans(text)
    for found in _SENTENCE.finditer(text):
        if not is_in(found.start(), spans):
            parts += [text[end : found.start()], *change(rjieba.cut(found[0], False))]
            end = found.end()
    return "".join([*parts, text[end:]])


def synonym(text: str, probability: float, chance: Random, table: Synonyms) -> str:
    """Replace words of the dictionary by one of their equivalents."""

    def change(words: Words) -> Words:
        return [
            _one_of(table.equivalents[word], chance)
            if word in table.equivalents and chance.random() < probability
            else word
            for word in words
        ]

    return in_sentences(text, change)


def delete(text: str, probability: float, chance: Random) -> str:
    """Leave words out, never the first or last of a clause."""

    def change(words: Words) -> Words:
        inner = range(1, len(words) - 1)
        gone = {
            i for i in inner if all(map(_WORD.match, words[i - 1 : i + 2])) and chance.random() < probability
        }
        return [word for i, word in enumerate(words) if i not in gone]

    return in_sentences(text, change)


def insert(text: str, probability: float, chance: Random) -> str:
    """Insert 的 between two words of a clause, or 了 at its end."""

    def change(words: Words) -> Words:
        found: Words = []
        for word, following in zip(words, [*words[1:], "，"], strict=True):
            found.append(word)
            if _WORD.match(word) and word[-1] not in _PARTICLES and following[0] not in _PARTICLES:
                ends = not _WORD.match(following)
                if chance.random() < probability:
                    found.append("了" if ends else "的")
        return found

    return in_sentences(text, change)


def reorder(text: str, probability: float, chance: Random) -> str:
    """Swap two neighbouring clauses of a sentence; the marks stay where they are."""

    def change(words: Words) -> Words:
        clauses = "".join(words).split("，")
        if len(clauses) < 2 or not all(clauses) or chance.random() >= probability:
            return words
        if any(mark in words for mark in "：“”‘’"):  # a quotation must not be torn
            return words
        first = int(chance.random() * (len(clauses) - 1))
        clauses[first : first + 2] = reversed(clauses[first : first + 2])
        return ["，".join(clauses)]

    return in_sentences(text, change)


def _one_of(values: tuple[str, ...], chance: Random) -> str:
    return values[int(chance.random() * len(values))]
