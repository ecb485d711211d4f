"""Numbers and lists of things in the words of a message, and messages in two languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """The same in two languages."""

    en: str = ""
    zh: str = ""

    def __str__(self) -> str:
        return self.en


def together(*said: Words | None) -> Words:
    """Sentences one after the other; those that are None are left out."""
    parts = [one for one in said if one is not None]
    return Words(" ".join(one.en for one in parts), "".join(one.zh for one in parts))


_MOST = 10


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number of things in words: `1 file`, `12 files`.

    Args:
        many: the plural, where it is not the singular with an s.
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def some_of(names: Sequence[str]) -> str:
    """Names in a line of the log, however many there are: `a, b, c and 9,997 more`."""
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more:,} more" if more > 0 else "")
