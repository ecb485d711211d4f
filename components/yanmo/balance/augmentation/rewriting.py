"""The rules of augmentation for classical text and verse: each returns the text with random changes.

Random numbers come from `random.Random.random` alone, whose sequence for a seed is the same in every version
of Python. Texts are in the form `classical-1`: full-width punctuation, lines joined by line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

from yanmo.balance.augmentation import modern
from yanmo.balance.augmentation.rules import VERSE
from yanmo.balance.augmentation.synonyms import Synonyms
from yanmo.chinese.pingshui import tones

_MARKS = "，。！？；、：,.!?;:"
_CLAUSE = re.compile(rf"[^{_MARKS}\n“”‘’「」『』《》（）\[\]…—]+")
_SENTENCE = re.compile(r"[^。！？；\n]+")
_PERIOD = re.compile(r"[^。！？\n]+")
_CLASSICAL = {"，": "者", "。": "也", "；": "也", "？": "乎", "！": "矣"}
_PARTICLES = frozenset("之乎也者而矣焉哉耳兮的了")
_COUPLET_ENDS = frozenset("，；。！？")

Rewrite = Callable[[str, float, Random], str]


def synonym(text: str, probability: float, chance: Random, words: Synonyms) -> str:
    """Replace words of the dictionary by one of their equivalents."""
    parts, end = [], 0
    for at, word in words.places(text):
        if chance.random() < probability:
            parts += [text[end:at], _one_of(words.equivalents[word], chance)]
            end = at + len(word)
    return "".join([*parts, text[end:]])


def synonym_in_verse(text: str, probability: float, chance: Random, words: Synonyms) -> str:
    """As `synonym`, but only by equivalents of the same length and tones, never at the end of a clause."""
    parts, end = [], 0
    for at, word in words.places(text):
        after = at + len(word)
        if after >= len(text) or text[after] in _MARKS or text[after] == "\n":
            continue
        fitting = [other for other in words.equivalents[word] if same_tones(word, other)]
        if fitting and chance.random() < probability:
            parts += [text[end:at], _one_of(fitting, chance)]
            end = after
    return "".join([*parts, text[end:]])


def same_tones(word: str, other: str) -> bool:
    """Return whether both have as many characters, each with the same tone classes, which are known."""
    pairs = zip(word, other, strict=False)
    return len(word) == len(other) and all(tones(a) and tones(a) == tones(b) for a, b in pairs)


def _one_of(values: Sequence[str], chance: Random) -> str:
    return values[int(chance.random() * len(values))]


def delete(text: str, probability: float, chance: Random) -> str:
    """Leave characters out, never the first or last of a clause."""

    def shorten(found: re.Match[str]) -> str:
        clause = found[0]
        kept = [c for c in clause[1:-1] if chance.random() >= probability]
        return clause if len(clause) < 3 else clause[0] + "".join(kept) + clause[-1]

    return _CLAUSE.sub(shorten, text)


def insert(text: str, probability: float, chance: Random) -> str:
    """Insert 而 before a clause, 者 也 乎 矣 after it (as its punctuation suggests), or 之 inside."""

    def put(found: re.Match[str]) -> str:
        clause = found[0]
        if chance.random() >= probability or len(clause) < 2:
            return clause
        before = text[found.start() - 1 : found.start()] if found.start() else ""
        after = text[found.end() : found.end() + 1]
        places = [_inside(clause, "之", chance)]
        if after in _CLASSICAL and clause[-1] not in _PARTICLES:
            places.append(clause + _CLASSICAL[after])
        if before == "，" and clause[0] not in _PARTICLES:
            places.append("而" + clause)
        return _one_of(places, chance)

    return _CLAUSE.sub(put, text)


def _inside(clause: str, word: str, chance: Random) -> str:
    at = 1 + int(chance.random() * (len(clause) - 1))
    if word in clause[at - 1 : at + 1]:
        return clause
    return clause[:at] + word + clause[at:]


def reorder(text: str, probability: float, chance: Random) -> str:
    """Swap two neighbouring clauses of a sentence; the punctuation stays where it is."""
    return _SENTENCE.sub(lambda found: _swap(found[0], "，", 1, probability, chance), text)


def reorder_pairs(text: str, probability: float, chance: Random) -> str:
    """Parallel prose: swap two neighbouring pairs of clauses, so that no pair is separated.

    A pair is what `；` separates; in a sentence without one, every two clauses.
    """

    def swap(found: re.Match[str]) -> str:
        period = found[0]
        if "；" in period:
            return _swap(period, "；", 1, probability, chance)
        return _swap(period, "，", 2, probability, chance)

    return _PERIOD.sub(swap, text)


def _swap(sentence: str, mark: str, size: int, probability: float, chance: Random) -> str:
    """Swap two neighbouring units of `size` parts each, where `mark` separates parts."""
    parts = sentence.split(mark)
    units = len(parts) // size
    if units < 2 or len(parts) % size or not all(parts) or chance.random() >= probability:
        return sentence
    if any(c in "“”‘’「」『』《》（）" for c in sentence):  # a quotation must not be torn
        return sentence
    first = size * int(chance.random() * (units - 1))
    middle, last = first + size, first + 2 * size
    return mark.join([*parts[:first], *parts[middle:last], *parts[first:middle], *parts[last:]])


def reorder_couplets(text: str, probability: float, chance: Random) -> str:
    """诗: swap lines of two equal clauses with others of the same tone pattern; the first line stays."""
    lines = text.split("\n")
    patterns = [_pattern(line) for line in lines]
    for i in range(1, len(lines)):
        if patterns[i] is None or chance.random() >= probability:
            continue
        others = [j for j in range(1, len(lines)) if j != i and patterns[j] == patterns[i]]
        if others:
            j = others[int(chance.random() * len(others))]
            marks = lines[i][-1], lines[j][-1]
            lines[i], lines[j] = lines[j][:-1] + marks[0], lines[i][:-1] + marks[1]
    return "\n".join(lines)


def _pattern(line: str) -> tuple[frozenset[str], ...] | None:
    """Tone classes at the even places and the ends of a couplet's clauses; None if it is no couplet."""
    clauses = _CLAUSE.findall(line)
    if len(clauses) != 2 or len(clauses[0]) != len(clauses[1]) or not line or line[-1] not in _COUPLET_ENDS:
        return None
    if len(line) != 2 * len(clauses[0]) + 2:
        return None
    found = tuple(tones(c[i]) for c in clauses for i in (*range(1, len(c) - 1, 2), len(c) - 1))
    return found if all(found) else None


def rewrites(genre: str, words: Synonyms, classical: bool) -> dict[str, Rewrite]:
    """Rule -> its function for documents of a genre, for the rules that apply to genre and form of text."""
    if genre in VERSE:
        return {
            "synonym": lambda text, p, chance: synonym_in_verse(text, p, chance, words),
            **({"reorder": reorder_couplets} if genre == "诗" else {}),
        }
    if not classical:
        return {
            "synonym": lambda text, p, chance: modern.synonym(text, p, chance, words),
            "reorder": modern.reorder,
            "insert-modern": modern.insert,
            "delete": modern.delete,
        }
    return {
        "synonym": lambda text, p, chance: synonym(text, p, chance, words),
        "reorder": reorder_pairs if genre == "赋" else reorder,
        "insert": insert,
        "delete": delete,
    }
