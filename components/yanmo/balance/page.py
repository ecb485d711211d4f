"""The report as one HTML page: shares as bars, tables, examples. The page loads nothing from elsewhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yanmo.balance.augmentation.augment import REPEAT, Augmenter
from yanmo.balance.document_table import DRAWN, Rows, TrainFiles
from yanmo.balance.report import largest
from yanmo.common.pages import html

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
_MOST_BARS = 20
_MOST_ROWS = 40
_MOST_WARNINGS = 12
_MOST_CHARACTERS = 400
_MOST_DIFFERED = 2000
"""Characters of a text that are compared at most: comparing takes quadratic time."""
_DRAWN_PER_EXAMPLE = 40
"""Documents drawn for each example: in most short verses there is no word that a rule would change."""


@dataclass(frozen=True)
class Example:
    """A document and its first copy."""

    id: str
    genre: str
    rule: str
    before: str
    after: str


def examples(files: TrainFiles, rows: Rows, augmenter: Augmenter, number: int, seed: int) -> list[Example]:
    """Up to `number` documents that the rules change, from each genre that has rules in turn."""
    by_genre = []
    for genre in rows.names("genre"):
        if augmenter.rules.of(genre):
            rows.tables.run(_SHOWN, genre=genre, seed=str(seed), number=number * _DRAWN_PER_EXAMPLE)
            by_genre.append(_changed(files, rows, augmenter, number))
    longest = max(map(len, by_genre), default=0)
    return [found[i] for i in range(longest) for found in by_genre if i < len(found)][:number]


_SHOWN = f"""
create or replace table shown as
select *, row_number() over (order by {DRAWN}, position) as place from rows where genre = $genre
order by place limit $number
"""


def _changed(files: TrainFiles, rows: Rows, augmenter: Augmenter, number: int) -> list[Example]:
    found: list[tuple[int, Example]] = []
    query, columns = "from shown order by file, row", ("id", "text", "genre", "loss_spans")
    for drawn, table in files.chosen(rows.tables, query, columns):
        made = augmenter.of_table(table, [1] * table.num_rows)
        texts = zip(*(table[name].to_pylist() for name in ("id", "genre", "text")), strict=True)
        for place, (id, genre, text), one in zip(drawn["place"].to_pylist(), texts, made, strict=True):
            if one.rule != REPEAT:
                found.append((place, Example(id, genre, one.rule, text, one.text)))
    return [example for _, example in sorted(found, key=lambda pair: pair[0])[:number]]


def page(report: Mapping[str, Any], shown: Sequence[Example]) -> str:
    """Return the page, below 1 MB whatever the corpus.

    Args:
        shown: documents and what augmentation made of them.
    """
    return html.render(
        _TEMPLATE,
        {"largest": largest},
        r=report,
        most_bars=_MOST_BARS,
        most_rows=_MOST_ROWS,
        most_warnings=_MOST_WARNINGS,
        pairs=[(example, list(_pieces(example))) for example in shown],
    )


def _pieces(example: Example) -> Iterator[tuple[str, str]]:
    """Yield the text piece by piece, before and after augmentation; equal where nothing changed."""
    before, after = (text[:_MOST_DIFFERED] for text in (example.before, example.after))
    length = 0
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        old, new = before[a:b], after[c:d]
        left = _MOST_CHARACTERS - length + 1
        yield old[:left], new[:left]
        length += max(len(old), len(new))
        if length > _MOST_CHARACTERS:
            yield "…", "…"
            return
