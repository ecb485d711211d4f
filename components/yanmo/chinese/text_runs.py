"""Runs of units that texts share: they reveal quotations, which comparing whole texts cannot.

A unit is a Han character (kana and hangul too), a word or a number; marks and white space are none, as in the
filter of GPT-3 (Brown et al. 2020, appendix C): a page in other punctuation, or indented otherwise, is no
other text, and rules of tables are no passage. Of classical text only the Han characters are `compared`.
Every run of n units of some texts is hashed to 64 bits, and so is every run of the others, in numpy, at about
7 million characters per second and core. In a corpus of 10^9 characters, compared with 10^6 runs, the chance
of a single false match is 5 in 100,000.

`curate` (copies; train against the evaluation set and benchmarks), `balance` (augmented copies against
held-out text) and `evaluate` (contamination) all use this file, so that they agree on what a run is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from yanmo.common.hash_set import HashSet, distinct

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

HAN_RANGES = ((0x3007, 0x3008), (0x3400, 0xA000), (0x20000, 0x40000))
"""Code points of Han characters (from, to before): the zero 〇 and ideographs; without compatibility
ideographs, which normalization replaces."""

_BASE = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
_INVERSE = np.uint64(pow(int(_BASE), -1, 1 << 64))
_BLOCK = 1 << 14
"""Runs that are hashed at a time."""
_MIX = np.uint64(0xBF58476D1CE4E5B9)  # splitmix64's multiplier
_NONE, _END, _UNIT, _LETTER = range(4)
"""Kinds of characters; those of units are the last two."""
_FIRST_UNIT = 0x2E80
"""From here on scripts have no space between words, so that each letter is a unit."""


@lru_cache(maxsize=2)
def _kinds(only_han: bool = False) -> npt.NDArray[np.uint8]:
    """Of each code point whether it is nothing, the end of a text, a unit, or a letter of a word."""
    table = np.zeros(0x110000, dtype=np.uint8)
    if not only_han:
        letters = np.strings.isalnum(np.arange(0x20000, dtype=np.uint32).view("U1"))
        table[:_FIRST_UNIT][letters[:_FIRST_UNIT]] = _LETTER
        table[_FIRST_UNIT:0x20000][letters[_FIRST_UNIT:]] = _UNIT
    for low, high in HAN_RANGES:
        table[low:high] = _UNIT
    table[0] = _END
    return table


def han_only(texts: Sequence[str]) -> list[str]:
    """The Han characters of `texts`."""
    codes = np.frombuffer("\0".join([*texts, ""]).encode("utf-32-le"), dtype=np.uint32)
    return str(codes[_kinds(only_han=True)[codes] != _NONE].tobytes(), "utf-32-le").split("\0")[:-1]


def is_by_characters(form: str) -> bool:
    """Return whether of texts in this form only the Han characters are compared."""
    return form.startswith("classical")


def compared(texts: Sequence[str], form: str) -> list[str]:
    """Of texts in a classical form their Han characters, of others the text as it reads."""
    return han_only(texts) if is_by_characters(form) else list(texts)


def units(texts: Sequence[str]) -> tuple[Hashes, Ints]:
    """The units of all texts as numbers, one after the other, and the index of the text each lies in."""
    codes = np.frombuffer("\0".join([*texts, ""]).encode("utf-32-le"), dtype=np.uint32)
    if not len(codes):
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    kinds = _kinds()[codes]
    numbers, is_unit = codes.astype(np.uint64), kinds == _UNIT
    letters = np.flatnonzero(kinds == _LETTER)
    if len(letters):  # a word is a unit at its first letter
        starts = np.flatnonzero(np.diff(letters, prepend=-2) > 1)
        sizes = np.diff(starts, append=len(letters))
        factors = np.cumprod(np.append(np.uint64(1), np.full(sizes.max() - 1, _BASE)))
        within = np.arange(len(letters)) - np.repeat(starts, sizes)
        words = np.add.reduceat(numbers[letters] * factors[within], starts)
        words[sizes > 1] = _mixed(words[sizes > 1])
        numbers[letters[starts]], is_unit[letters[starts]] = words, True
    texts_at = np.append(0, np.flatnonzero(kinds == _END)[:-1] + 1)
    owner = np.repeat(np.arange(len(texts_at)), np.add.reduceat(is_unit, texts_at, dtype=np.int64))
    return numbers[is_unit], owner


def _unit_spans(text: str) -> list[list[int]]:
    """Begin and end of each unit of a text."""
    kinds, spans, word_ends = _kinds(), list[list[int]](), -1
    for place, c in enumerate(text):
        kind = kinds[ord(c)]
        if kind == _LETTER and word_ends == place:
            spans[-1][1] = place + 1
        elif kind in (_UNIT, _LETTER):
            spans.append([place, place + 1])
        word_ends = place + 1 if kind == _LETTER else -1
    return spans


def _mixed(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> np.uint64(30)
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(27)
    return hashes


def run_hashes(texts: Sequence[str], length: int) -> tuple[Hashes, Ints]:
    """Hashes of every run of `length` units, and the index of the text each lies in."""
    return hashes_of(*units(texts), length)


def hashes_of(codes: Hashes, owner: Ints, length: int) -> tuple[Hashes, Ints]:
    """`run_hashes` of texts whose `units` these are."""
    inside = _in_one_text(owner, length)
    return _hashes(codes, length)[inside], owner[: len(inside)][inside]


def _in_one_text(owner: Ints, length: int) -> Bools:
    """Return for each run of `length` units that follow each other whether they are of one text."""
    count = max(len(owner) - length + 1, 0)
    return np.asarray(owner[:count] == owner[length - 1 :][:count])


def _hashes(codes: Hashes, length: int) -> Hashes:
    """Return the hash of each run of `length` units that follow each other.

    It is sum(codes[i + k] * BASE^(length - 1 - k)) mod 2^64, mixed. Of sums of codes[j] * BASE^-j over all
    that precedes, each is one difference: three passes over what lies in a processor's cache, not 2 * length.
    """
    count = max(len(codes) - length + 1, 0)
    hashes = np.empty(count, dtype=np.uint64)
    powers, inverse = _powers(_BASE, _BLOCK + length), _powers(_INVERSE, _BLOCK + length)
    for start in range(0, count, _BLOCK):
        part = codes[start : start + _BLOCK + length - 1]
        sums = np.cumsum(part * inverse[: len(part)])
        own = sums[length - 1 :].copy()
        own[1:] -= sums[: len(own) - 1]
        own *= powers[length - 1 : length - 1 + len(own)]
        hashes[start : start + _BLOCK] = _mixed(own)
    return hashes


@lru_cache(maxsize=4)
def _powers(base: np.uint64, count: int) -> Hashes:
    return np.cumprod(np.append(np.uint64(1), np.full(count - 1, base)), dtype=np.uint64)


@dataclass(frozen=True)
class Runs:
    """The runs of some texts, such as an evaluation set."""

    length: int
    hashes: Hashes
    """Sorted, each once."""

    @classmethod
    def of(cls, texts: Sequence[str], length: int) -> Runs:
        """The runs of `length` units in `texts`."""
        return cls(length, distinct(run_hashes(texts, length)[0]))

    @cached_property
    def _set(self) -> HashSet:
        return HashSet(self.hashes)

    def of_texts(self, texts: Sequence[str]) -> tuple[Hashes, Ints]:
        """Every run of `texts`, in order, and the index of the text each lies in."""
        return run_hashes(texts, self.length)

    def shares(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.float64], Hashes]:
        """The share of each text's units that lies in shared runs, and these runs, sorted."""
        result = np.zeros(len(texts))
        if not len(self.hashes):
            return result, self.hashes
        codes, owner = units(texts)
        hashes = _hashes(codes, self.length)
        at = self._set.find(hashes)
        at = at[owner[at] == owner[at + self.length - 1]]
        if len(at):
            whose = owner[at]
            more = np.diff(at, prepend=0)  # units by which a run goes beyond the one before it
            more[np.diff(whose, prepend=-1) > 0] = self.length
            covered = np.bincount(whose, weights=np.minimum(more, self.length), minlength=len(texts))
            result = covered / np.maximum(np.bincount(owner, minlength=len(texts)), 1)
        return result, distinct(hashes[at])

    def longest(self, text: str) -> str:
        """The longest passage of `text` that lies in shared runs one after another."""
        at = self._set.find(run_hashes([text], self.length)[0])
        if not len(at):
            return ""
        part = max(np.split(at, np.flatnonzero(np.diff(at) > 1) + 1), key=len)
        spans = _unit_spans(text)
        return text[spans[part[0]][0] : spans[part[-1] + self.length - 1][1]]

    def places(self, texts: Sequence[str]) -> tuple[Hashes, Ints]:
        """Every place in `texts` where one of these runs is: its hash, and the index of the text."""
        hashes, owner = run_hashes(texts, self.length)
        shared = self._set.find(hashes)
        return hashes[shared], owner[shared]

    def documents_with(self, texts: Sequence[str]) -> tuple[Hashes, Ints]:
        """Those of these runs that the texts hold, sorted, and how many of the texts hold each."""
        hashes, owner = self.places(texts)
        order = np.argsort(hashes, kind="stable")  # owners rise, so those of one run stay in order
        hashes, owner = hashes[order], owner[order]
        differs = np.ones(len(hashes), dtype=np.bool_)
        differs[1:] = (hashes[1:] != hashes[:-1]) | (owner[1:] != owner[:-1])
        found = distinct(hashes)
        return found, np.bincount(np.searchsorted(found, hashes[differs]), minlength=len(found))

    def without(self, hashes: Hashes) -> Runs:
        """These runs without those with the given hashes."""
        return Runs(self.length, np.setdiff1d(self.hashes, hashes, assume_unique=True))

    def touched_in(self, texts: Sequence[str]) -> Runs:
        """The runs of `texts` that overlap one of these runs wherever they occur in `texts`."""
        hashes, owner = run_hashes(texts, self.length)
        at = self._set.find(hashes)  # the runs of a text follow each other, each one unit further on
        touched = np.zeros(len(hashes), dtype=np.bool_)
        for offset in range(1 - self.length, self.length):
            near = at + offset
            inside = (near >= 0) & (near < len(hashes))
            inside[inside] = owner[near[inside]] == owner[at[inside]]
            touched[near[inside]] = True
        free = distinct(hashes[~touched])
        return Runs(self.length, distinct(hashes[touched])).without(free)

    def found_in(self, texts: Sequence[str]) -> Bools:
        """Return whether each text shares a run."""
        return self.shares(texts)[0] > 0
