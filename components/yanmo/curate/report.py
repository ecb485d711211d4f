"""The report of a curate run: report.json, and a table in the log."""

from __future__ import annotations

import logging
from typing import Any

from yanmo.common.aligned_table import short_table
from yanmo.curate.config import CurateOptions
from yanmo.curate.limits import PLAN_REASONS, reasons_in
from yanmo.curate.mapping import MapReport
from yanmo.curate.text.filter_sets import FILTERS, MAXIMUM, REASONS
from yanmo.curate.text.record_rules import allowed_shares, record_rules

log = logging.getLogger(__name__)

_COLUMNS = (
    *("genre", "read", "filtered", "copies", "overlap", "train"),
    *("valid", "test", "confirm", "characters"),
)

_DROPPED = (("duplicate", "near_duplicate"), ("overlap", "benchmark"))
"""Reasons counted in the columns `copies` and `overlap`."""


def describe(report: MapReport, options: CurateOptions) -> dict[str, Any]:
    """The part of report.json on reading, cleaning and dropping, by genre, with examples."""
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
    """Each filter applied to a genre of this text: what it measures, its thresholds, and what it dropped."""
    text, shares, tally = record_rules(options), allowed_shares(options), report.tally
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
                "allowed_share": shares[name],
                "dropped": tally.documents(name),
            }
    for each in text.rules.plugins:
        bound = "at_most" if each.sign == MAXIMUM else "at_least"
        dropped = tally.documents(each.reason)
        allowed = shares[each.reason]
        result[each.reason] = {"measures": f"{each.plugin}", bound: each.limit, "allowed_share": allowed}
        result[each.reason]["dropped"] = dropped
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
