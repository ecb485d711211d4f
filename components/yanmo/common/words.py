"""Words of a message: numbers, lists, likely names, two languages, and nothing that steers a terminal."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
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


_MOST_NAMES = 10


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number of things in words: `1 file`, `12 files`.

    Args:
        many: the plural, where it is not the singular with an s.
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def some_of(names: Sequence[str]) -> str:
    """Names in a line of the log, however many there are: `a, b, c and 9,997 more`."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


_SLIP, _NEAR = 0.86, 0.75
"""Least share of equal characters (difflib): of one slip, and of what is still likely: `gpu` is no slip for
`cpu`, nor `stride` for `store`."""
_LEAST, _MOST = 3, 4


def did_you_mean(name: str, known: Iterable[str], mark: str = "") -> str:
    """`; did you mean --steps?` for a name that is nearly one of `known`, or a part of some, else nothing.

    Args:
        mark: what is put before the names that are found, such as `--`.
    """
    names = {each.lower(): each for each in known}
    wanted = name.lower()[:100]
    holding = [each for each in names if len(wanted) >= _LEAST and wanted in each]
    found = _near(wanted, names, _SLIP) or holding[:_MOST] or _near(wanted, names, _NEAR)
    return f"; did you mean {', '.join(mark + names[each] for each in found)}?" if found else ""


def _near(wanted: str, names: Iterable[str], share: float) -> list[str]:
    return difflib.get_close_matches(wanted, list(names), n=1, cutoff=share)


_STEERING = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f"
    "\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]"
)
"""Control characters, marks of writing direction, and others that cannot be seen: a genre or a title may hold
them, and a terminal obeys them."""


def visible(text: str) -> str:
    """`text` with such characters as JSON writes them (`\\u202e`), so that JSON stays JSON."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
