"""A filter, a metric and a task for Yanmo, each a function (docs/how-to/extend.md)."""

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


def line_order(texts: Sequence[Any], model: Any) -> dict[str, float]:
    """How often the model finds a text's first two lines likelier in their order than exchanged.

    A task that needs nobody's labels; chance is one half.
    """
    pairs = [each.text.split("\n")[:2] for each in texts if each.text.count("\n")]
    right = model.log_likelihoods([("", f"{first}\n{second}") for first, second in pairs])
    wrong = model.log_likelihoods([("", f"{second}\n{first}") for first, second in pairs])
    hits = sum(a > b for a, b in zip(right, wrong, strict=True))
    return {"accuracy": hits / max(len(pairs), 1), "of": len(pairs), "chance": 0.5}
