"""The report as one HTML page: shares as bars, tables, examples. The page loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from yanmo.balance.preview import Example, marked
from yanmo.common.pages import html

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
_MOST_BARS = 20
_MOST_ROWS = 40
_MOST_WARNINGS = 12
_MOST_CHARACTERS = 400
_MOST_DIFFERED = 2000
"""Characters of a text that are compared at most: comparing takes quadratic time."""


def page(report: Mapping[str, Any], shown: Sequence[Example]) -> str:
    """The page, below 1 MB whatever the corpus.

    Args:
        shown: documents and what augmentation made of them.
    """
    return html.render(
        _TEMPLATE,
        {"largest": _largest},
        r=report,
        most_bars=_MOST_BARS,
        most_rows=_MOST_ROWS,
        most_warnings=_MOST_WARNINGS,
        pairs=[(example, list(_pieces(example))) for example in shown],
    )


def _largest(classes: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The `number` classes with the most characters, in the order of `classes`."""
    order = sorted(classes, key=lambda name: -classes[name]["after"]["characters"])[:number]
    return {name: classes[name] for name in classes if name in set(order)}


def _pieces(example: Example) -> Iterator[tuple[str, str]]:
    """The text piece by piece, before and after augmentation; both are the same where nothing changed."""
    before, after = (text[:_MOST_DIFFERED] for text in (example.before, example.after))
    length = 0
    for _, old, new in marked(before, after):
        left = _MOST_CHARACTERS - length + 1
        yield old[:left], new[:left]
        length += max(len(old), len(new))
        if length > _MOST_CHARACTERS:
            yield "…", "…"
            return
