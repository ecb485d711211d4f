"""A filter and a metric for Yanmo, each a function (docs/how-to/extend.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any


def longest_line(text: str, genre: str) -> float:
    """The longest line of a text, in characters: verse that was never cut into lines has long ones."""
    return max(map(len, text.split("\n")))


def bits_by_line(texts: Sequence[Any]) -> dict[str, float]:
    """Bits per line of each genre."""
    bits: dict[str, float] = defaultdict(float)
    lines: dict[str, int] = defaultdict(int)
    for each in texts:
        bits[each.genre] += each.bits
        lines[each.genre] += each.text.count("\n") + 1
    return {genre: bits[genre] / lines[genre] for genre in bits}
