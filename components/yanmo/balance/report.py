"""What balancing did to each class: the numbers of report.json, the table in the log, the warnings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from yanmo.balance.document_table import Rows
from yanmo.balance.quotas.targets import OTHERS, QuotaPlan, Target
from yanmo.common.aligned_table import text_table

log = logging.getLogger(__name__)
WHAT = ("documents", "characters", "tokens")
_MOST_ROWS = 30


def class_metrics(rows: Rows, column: str) -> dict[str, Any]:
    """Genre or class -> documents, characters and tokens with their shares, before and after; and epochs."""
    before = _sums(rows, column, "rows")
    after = _sums(rows, column, f"picked join (select position, {column} as name from rows) using (position)")
    return {
        name: {
            "before": _side(before, name),
            "after": _side(after, name),
            "epochs": after["characters"].get(name, 0) / max(before["characters"][name], 1),
        }
        for name in rows.names(column)
    }


def _sums(rows: Rows, column: str, chosen: str) -> dict[str, dict[str, int]]:
    """documents, characters or tokens -> genre or class -> sum."""
    name = "name" if "picked" in chosen else column
    sums = "count(*), sum(characters)::bigint, sum(tokens)::bigint"
    found = rows.tables.rows(f"select {name}, {sums} from {chosen} group by {name}")
    return {what: {row[0]: row[i] for row in found} for i, what in enumerate(WHAT, 1)}


def _side(sums: Mapping[str, Mapping[str, int]], name: str) -> dict[str, Any]:
    numbers = {what: sums[what].get(name, 0) for what in WHAT}
    shares = {what: numbers[what] / max(sum(sums[what].values()), 1) for what in WHAT}
    return {**numbers, "shares": shares}


def add_targets(classes: dict[str, Any], targets: Mapping[str, Target], unit: str) -> None:
    """Add to the metrics of each class its quota, its target, and what is missing of the target."""
    for name, target in targets.items():
        missing = target.wanted - classes[name]["after"][unit]
        classes[name] |= {"quota": target.quota, "wanted": target.wanted, "missing": missing}


def find_warnings(
    classes: Mapping[str, Any],
    targets: Mapping[str, Target],
    plan: QuotaPlan,
    unit: str,
    max_repeats: int,
) -> list[str]:
    """Return what a user should know about the quotas, a sentence each."""
    return [
        text
        for name, target in targets.items()
        for text in _about(name, target, classes[name], plan, unit, max_repeats)
    ]


def _about(
    name: str,
    target: Target,
    figures: Mapping[str, Any],
    plan: QuotaPlan,
    unit: str,
    max_repeats: int,
) -> list[str]:
    available, held = figures["before"][unit], figures["after"][unit]
    if target.units < target.wanted:
        return [
            f"{name}: {target.quota} is not reached: it asks for {target.wanted:,} {unit}, there are "
            f"{available:,}, and --max-repeats {max_repeats} allows {target.units:,}"
        ]
    if target.quota and not plan.is_relative and target.units == available:
        return [f"{name}: {target.quota} changes nothing: it is what there is"]
    if held != target.units:
        return [
            f"{name}: the quota of {target.units:,} {unit} lacks {target.units - held:,}; no document "
            "that is left is as short"
        ]
    return []


def warn_unused_others(plan: QuotaPlan, quotas: Mapping[str, Any]) -> list[str]:
    """Return a warning where `*` stands for no class."""
    if OTHERS not in plan.quotas or len(quotas) >= len(plan.quotas):
        return []
    return [f"*={plan.quotas[OTHERS]} is not used: every class has a quota of its own"]


def largest(classes: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the `number` classes with the most characters, in the order of `classes`."""
    order = sorted(classes, key=lambda name: -classes[name]["after"]["characters"])[:number]
    return {name: classes[name] for name in classes if name in set(order)}


def log_report(report: Mapping[str, Any]) -> None:
    """Log a table of the classes (epochs, documents, characters, shares before -> after), then warnings."""
    classes = report["classes"]
    rows = [[report["by"], "quota", "epochs", "documents", "->", "characters", "->", "% of chars", "->"]]
    rows[0] += ["% of tokens", "->"]
    for name in largest(classes, _MOST_ROWS):
        figures = classes[name]
        sides = figures["before"], figures["after"]
        numbers = [f"{side[what]:,}" for what in ("documents", "characters") for side in sides]
        shares = [f"{100 * side['shares'][w]:.1f}" for w in ("characters", "tokens") for side in sides]
        rows.append([name, figures["quota"] or "all", f"{figures['epochs']:.2f}", *numbers, *shares])
    for line in text_table(rows):
        log.info("%s", line)
    if len(classes) > _MOST_ROWS:
        log.info("... and %d smaller classes; report.json has all", len(classes) - _MOST_ROWS)
    for text in report["warnings"]:
        log.warning("%s", text)
