"""Names and tables for a page of Markdown that shows other people's text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

_IN_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~&])")


def plain(text: str) -> str:
    """Return a text on one line of Markdown, with nothing in it that Markdown or HTML would read."""
    visible = "".join(c if c.isprintable() else " " for c in text)
    return _IN_MARKDOWN.sub(r"\\\1", " ".join(visible.split()))[:200] or "-"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; its cells are Markdown."""
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
