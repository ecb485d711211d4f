"""The page that a person reads first: one HTML file in English and Chinese, made from report.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yanmo.common.pages import html
from yanmo.options.fields import shown
from yanmo.promote.gate.headline import conditions, headline
from yanmo.promote.gate.verdict import Words
from yanmo.promote.page import names
from yanmo.promote.page.charts import LineChart, dot_chart, line_chart
from yanmo.promote.page.report import baseline_wins
from yanmo.promote.page.summary import chosen_verses
from yanmo.store.champion_records import shown_time

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
MOST_BYTES = 2_000_000
_MOST_COLUMNS = 10
_INFORMED = ("mixture",)
"""Baselines that know the genre of a text."""
_FIRST_LINES, _FIRST_CHARACTERS = 4, 140
"""Of a sample at the top of the page; all of it follows below."""
_LIMITS = {
    "most_rows": 40,
    "most_options": 200,
    "most_samples": 4,
    "most_dialogues": 10,
    "most_of_a_value": 500,
}
"""Members of a list and characters of a text on the page; report.json has all of them."""


def render(report: Mapping[str, Any]) -> str:
    """The page as HTML, below 2 MB.

    Args:
        report: as `yanmo.promote.page.report.make_report` gives it.
    """
    table = report["bits_per_character"]
    documents = _largest(table["documents"])
    columns = table["columns"][:_MOST_COLUMNS]
    drawn = [{**c, "rows": {genre: c["rows"][genre] for genre in documents}} for c in columns]
    page = html.render(
        _TEMPLATE,
        {"option": shown, "of_shown": lambda genres: {g: genres[g] for g in documents if g in genres}},
        r=report,
        headline=headline(report["verdict"]),
        conditions=conditions(Words(**report["verdict"]["sentence"])),
        documents=documents,
        columns=columns,
        dots=dot_chart(drawn),
        loss=loss_chart(report["training"]),
        tag_words=_tag_words(columns),
        informed=_INFORMED,
        trained=next((s["options"] for s in report["stages"] if s["stage"] == "train"), {}),
        epochs=_epochs(report),
        first_samples=_first_samples(report),
        strongest=_strongest(baseline_wins(table)),
        memorization=memorization_rows(report),
        verse=_verse(report),
        made_at=shown_time(report["made_at"]),
        gloss=names.gloss,
        called=names.called,
        **_LIMITS,
    )
    assert len(page.encode()) < MOST_BYTES, "a list or a text without a limit"
    return page


def _largest(documents: Mapping[str, Any]) -> dict[str, Any]:
    """The genres with the most characters, in the order of `documents`."""
    order = sorted(documents, key=lambda genre: -documents[genre]["characters"])
    shown = set(order[: _LIMITS["most_rows"]])
    return {genre: counts for genre, counts in documents.items() if genre in shown}


def _tag_words(columns: Sequence[Mapping[str, Any]]) -> Words:
    """Return which of the columns know the genre of a text."""
    shown = {column["id"] for column in columns}
    english = chinese = ""
    if "with_tag" in shown:
        english += " Only in “with genre tag” is the model given the tag of the text's genre."
        chinese += "只有“带体裁标记”一列事先给出文本的体裁标记。"
    if "mixture" in shown:
        english += " The 5-gram mixture knows the genre, too."
        chinese += "五元混合模型也知道体裁。"
    return Words(english, chinese)


def _epochs(report: Mapping[str, Any]) -> float | None:
    """Return how often the training read its tokens; None where either number is not known."""
    counts = ((report["data"]["tokenize"] or {}).get("genres") or {}).values()
    tokens = sum(count["tokens"] for count in counts)
    read = (report["training"] or {}).get("tokens")
    return read / tokens if read and tokens else None


def _first_samples(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Genre and first lines of the two samples at the top, which begin the run's summary too."""
    seed = report["options"].get("seed", 0)
    chosen = chosen_verses(report["samples"], seed if isinstance(seed, int) else 0)[:2]
    return [(genre, _beginning(text)) for genre, text in chosen]


def _beginning(text: str) -> str:
    lines = html.cut(text, _FIRST_CHARACTERS).split("\n")
    return "\n".join([*lines[:_FIRST_LINES], *(["……"] if len(lines) > _FIRST_LINES else [])])


def _strongest(wins: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The baseline that is hardest to beat, alone in a list; none without baselines."""
    known = [win for win in wins if win["mean_gain"] is not None]
    return sorted(known, key=lambda win: float(win["mean_gain"]))[:1]


def loss_chart(training: Mapping[str, Any] | None) -> LineChart | None:
    """Return the bits per character of training and validation over its steps; None without a record."""
    if training is None:
        return None
    valid = training["curve"] or training["valid"]
    return line_chart({"train": training["bits_per_character"], "valid": valid}, dotted="valid")


def memorization_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"name", "is_count", "figures"} of every plain figure; figures of challenger and originals.

    Empty where nobody measured them.
    """
    own = report["memorization"]
    if not isinstance(own, Mapping):
        return []
    columns = (own["generated"], own["held_out"])
    return [
        {"name": name, "is_count": name == "longest_copy", "figures": [c.get(name) for c in columns]}
        for name in own["generated"]
    ]


def _verse(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the rules of verse; none where neither model nor people wrote any (prose)."""
    rows = report["verse"] or []
    cells = [row.get(writer) or {} for row in rows for writer in ("generated", "held_out")]
    return list(rows) if any(cell.get("of") for cell in cells) else []
