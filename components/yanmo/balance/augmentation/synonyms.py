"""Synonyms: Yanmo's list for classical or modern Chinese, or a file of the user's.

A line is a group of words that may replace one another, separated by white space; or `!` and words inside of
which nothing is replaced; or `#` and a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from yanmo.common.errors import DataError
from yanmo.common.given_file import MIB, given_text

CLASSICAL_WORDS = Path(__file__).with_name("synonyms_classical.txt")
MODERN_WORDS = Path(__file__).with_name("synonyms_modern.txt")
_MOST_WORDS = 500
_MOST_BYTES = 16 * MIB


@dataclass(frozen=True)
class Synonyms:
    """Word -> its equivalents, and words that are left as they are."""

    equivalents: dict[str, tuple[str, ...]]
    fixed: frozenset[str]

    @classmethod
    def read(cls, path: Path) -> Synonyms:
        """Read a dictionary file.

        Raises:
            DataError: the file is not readable as UTF-8, or has no group of two words.
        """
        what, shown = "a text file with one group of words per line", f"--synonyms {path}"
        try:
            lines = given_text(path, what, shown=shown, most_bytes=_MOST_BYTES).splitlines()
        except FileNotFoundError as error:
            raise DataError(f"{shown}: expected {what}: no such file") from error
        groups: dict[str, list[str]] = {}
        fixed: set[str] = set()
        for number, line in enumerate(lines, 1):
            words = line.split()
            if words and words[0] == "!":
                fixed.update(words[1:])
                continue
            group = [] if line.startswith("#") else words
            if len(group) > _MOST_WORDS:  # each word is kept with all others
                raise DataError(
                    f"--synonyms {path}:{number}: {len(group)} words that may stand for one another; "
                    f"expected one group per line, of at most {_MOST_WORDS} words"
                )
            _add(groups, group)
        if not groups:
            raise DataError(
                f"--synonyms {path}: no line holds two words that may stand for one another; expected one "
                "group of words per line"
            )
        return cls({word: tuple(others) for word, others in groups.items()}, frozenset(fixed - groups.keys()))

    @cached_property
    def _lengths(self) -> dict[str, list[int]]:
        """First character -> lengths of the words that begin with it, longest first."""
        found: dict[str, set[int]] = {}
        for word in (*self.equivalents, *self.fixed):
            found.setdefault(word[0], set()).add(len(word))
        return {first: sorted(lengths, reverse=True) for first, lengths in found.items()}

    @cached_property
    def _first(self) -> re.Pattern[str]:
        return re.compile("[" + "".join(map(re.escape, sorted(self._lengths))) + "]")

    def places(self, text: str) -> Iterator[tuple[int, str]]:
        """Place and word of each match in a text, from left to right, the longest at each place.

        Words that are fixed or doubled (`寂寂`) are passed over.
        """
        at = 0
        while (found := self._first.search(text, at)) is not None:
            at = found.start()
            for length in self._lengths[found[0]]:
                word = text[at : at + length]
                if word in self.equivalents and not _is_doubled(text, at, word):
                    yield at, word
                if word in self.equivalents or word in self.fixed:
                    at += length
                    break
            else:
                at += 1


def _is_doubled(text: str, at: int, word: str) -> bool:
    return text.startswith(word, at + len(word)) or text.endswith(word, 0, at)


def _add(groups: dict[str, list[str]], words: list[str]) -> None:
    unique = list(dict.fromkeys(words))
    if len(unique) < 2:
        return
    for word in unique:
        known = groups.setdefault(word, [])
        known += [other for other in unique if other != word and other not in known]
