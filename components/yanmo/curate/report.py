"""The report of a curate run: report.json, a page of Markdown for the UI, and tables in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yanmo.common.aligned_table import short_table, text_table
from yanmo.curate.config import CurateOptions
from yanmo.curate.limits import PLAN_REASONS, reasons_in
from yanmo.curate.map_report import MapReport
from yanmo.curate.text.filter_sets import FILTERS, MAXIMUM, REASONS
from yanmo.curate.text.record_rules import record_rules
from yanmo.formats.decisions import MALFORMED

log = logging.getLogger(__name__)
_IN_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~&])")

_COLUMNS = (
    *("genre", "read", "filtered", "copies", "overlap", "train"),
    *("valid", "test", "confirm", "characters"),
)

_DROPPED = (("duplicate", "near_duplicate"), ("overlap", "benchmark"))
"""Reasons counted in the columns `copies` and `overlap`."""


def describe(report: MapReport, options: CurateOptions) -> dict[str, Any]:
    """Return the part of report.json on reading, cleaning and dropping, by genre, with examples."""
    value = report.to_json()
    counts = value["counts"]
    return {
        "lines": report.lines,
        "malformed": report.malformed,
        "first_malformed": [str(m) for m in report.first_malformed],
        "files": dict(sorted(report.files.items())),
        **({"chats": value["chats"]} if report.chats else {}),
        **({"empty": report.empty} if report.empty else {}),
        "read": counts.get("read", {}),
        "cleaned": {n.removeprefix("cleaned_"): v for n, v in counts.items() if n.startswith("cleaned_")},
        "dropped": {r: counts[r] for r in reasons_in(report)},
        "kept": counts.get("train", {}),
        "filters": _filters(report, options),
        "examples": value["examples"],
    }


def _filters(report: MapReport, options: CurateOptions) -> dict[str, Any]:
    """Return each filter applied to a genre here: what it measures, its thresholds, what it dropped."""
    text, tally = record_rules(options), report.tally
    sets = {genre: text.rules.set_of(genre) for genre in tally.genres("read")}
    result = {}
    for name in REASONS:
        limits = {
            s: text.rules.limits[s][name] for s in sorted(set(sets.values())) if name in text.rules.limits[s]
        }
        if limits:
            result[name] = {
                "measures": FILTERS[name][1],
                "at_most" if FILTERS[name][0] == MAXIMUM else "at_least": limits,
                "allowed_share": options.max_filter_share,
                "dropped": tally.documents(name),
            }
    for each in text.rules.plugins:
        bound = "at_most" if each.sign == MAXIMUM else "at_least"
        dropped = tally.documents(each.reason)
        result[each.reason] = {
            "measures": f"{each.plugin}",
            bound: each.limit,
            "allowed_share": options.max_filter_share,
            "dropped": dropped,
        }
    return {"sets": sets, "text_form": text.form, **result}


def log_table(report: MapReport, evaluation_set: dict[str, Any]) -> None:
    """One line per genre: documents read, dropped by filters, copies, overlaps, and each split."""
    tally = report.tally
    rows: list[list[str]] = [list(_COLUMNS)]
    for genre in (*tally.genres("read"), None):
        numbers = [
            tally.documents("read", genre),
            sum(
                tally.documents(reason, genre) for reason in reasons_in(report) if reason not in PLAN_REASONS
            ),
            *(sum(tally.documents(name, genre) for name in names) for names in _DROPPED),
            tally.documents("train", genre),
            *(_held(evaluation_set, split, genre) for split in ("valid", "test", "confirm")),
            tally.characters("train", genre),
        ]
        rows.append([genre or "all", *(f"{n:,}" for n in numbers)])
    for line in short_table(rows):
        log.info("%s", line)


def _held(evaluation_set: dict[str, Any], split: str, genre: str | None) -> int:
    documents: dict[str, int] = evaluation_set["documents"].get(split, {})
    return sum(documents.values()) if genre is None else documents.get(genre, 0)


PAGE = "report.md"
_MOST_PLACES, _DEEPEST = 20, 8
Rows = list[tuple[str, ...]]
Sums = Mapping[str, Sequence[int]]
"""As decisions.py gives them."""


def page(report: MapReport, sums: Sums) -> str:
    """Return a page of what is kept and what is dropped, for readers who have only the UI."""
    tables = [
        _table(head, [tuple(map(_plain, row)) for row in rows])
        for head, *rows in (_kept(sums), _dropped(report))
    ]
    return "# What is kept for training\n\n" + "\n\n## What is not, and why\n\n".join(tables) + "\n"


def log_page(report: MapReport, sums: Sums) -> None:
    """The tables of the page in the log."""
    rows = _dropped(report)
    dropped = zip(text_table([row[:-1] for row in rows]), rows, strict=True)
    for line in (*text_table(_kept(sums)), "", *(f"{line}  {row[-1]}" for line, row in dropped)):
        log.info("%s", line)


def _kept(sums: Sums) -> Rows:
    """By the deepest folders that are few, the largest first."""
    found: dict[str, list[int]] = {}
    for depth in range(_DEEPEST, 0, -1):
        found = {}
        for name, row in sums.items():
            parts = name.split("/")
            top = "/".join(parts[:depth]) + "/" * (len(parts) > depth)
            found[top] = [a + b for a, b in zip(found.get(top, (0, 0, 0)), row, strict=True)]
        if len(found) <= _MOST_PLACES:
            break
    order = sorted(found, key=lambda name: (-found[name][2], name))
    shown = {name: found[name] for name in order[:_MOST_PLACES]}
    for name, rest in ((f"{len(order) - len(shown):,} others", order[_MOST_PLACES:]), ("all", order)):
        if rest:
            shown[name] = [sum(column) for column in zip(*(found[one] for one in rest), strict=True)]
    head = ("source", "documents read", "kept", "characters kept")
    return [head, *((name, *(f"{n:,}" for n in row)) for name, row in shown.items())]


def _dropped(report: MapReport) -> Rows:
    tally, rows = report.tally, Rows()
    for reason in reasons_in(report):
        documents, characters = tally.documents(reason), tally.characters(reason)
        examples = [f"{e['path']} {e.get('note', '')}".strip() for e in tally.examples[reason][:2]]
        share = characters / max(tally.characters("read"), 1)
        rows.append((reason, f"{documents:,}", f"{characters:,}", f"{share:.1%}", ", ".join(examples)))
    if report.malformed:
        first = report.first_malformed[0]
        rows.append((MALFORMED, f"{report.malformed:,}", "-", "-", f"{first.file}:{first.line}"))
    return [("reason", "documents", "characters", "share", "for instance"), *rows]


def _plain(text: str) -> str:
    """Return a text on one line of Markdown, with nothing in it that Markdown or HTML would read."""
    visible = "".join(c if c.isprintable() else " " for c in text)
    return _IN_MARKDOWN.sub(r"\\\1", " ".join(visible.split()))[:200] or "-"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; its cells are Markdown."""
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
