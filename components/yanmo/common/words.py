"""Numbers and lists of things in the words of a message."""

from __future__ import annotations

from collections.abc import Sequence

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
