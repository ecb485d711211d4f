"""Tables in plain text whose columns stay straight with Chinese characters in them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from yanmo.common.words import plural

_MOST = 30


def width(text: str) -> int:
    """Columns of a terminal that `text` takes: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of a table: first column flush left, the others flush right, two spaces apart.

    Args:
        rows: the heading first; all of one length.
    """
    widths = [max(width(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(_padded(row, widths)).rstrip() for row in rows]


def short_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """`text_table` of at most so many rows between the heading and the last row, with a line for the others:
    a corpus may have 10,000 genres, and a log is read."""
    left_out = len(rows) - _MOST - 2
    if left_out <= 0:
        return text_table(rows)
    *lines, last = text_table([*rows[: _MOST + 1], rows[-1]])
    return [*lines, f"... and {plural(left_out, 'row')} more, in the output's files", last]


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    gaps = [" " * (w - width(cell)) for cell, w in zip(row, widths, strict=True)]
    return [row[0] + gaps[0], *(gap + cell for cell, gap in zip(row[1:], gaps[1:], strict=True))]
