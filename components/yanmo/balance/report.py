"""What balancing did to each class: the numbers of report.json, the table in the log, the warnings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.balance.document_table import Codes, Rows
from yanmo.balance.quotas.choice import Picked
from yanmo.balance.quotas.targets import OTHERS, QuotaPlan, Target
from yanmo.common.aligned_table import text_table
from yanmo.common.disk_arrays import slices, taken

log = logging.getLogger(__name__)
WHAT = ("documents", "characters", "tokens")
_MOST_ROWS = 30
Sizes = npt.NDArray[np.int32]


def class_metrics(rows: Rows, picked: Picked, codes: Codes, names: list[str]) -> dict[str, Any]:
    """Class -> documents, characters and tokens with their shares, before and after; and epochs.

    Args:
        codes: the class of every row, as an index into `names`.
        names: names of the classes (of the genres, for metrics by genre).
    """
    before = _sums(codes, rows.characters, rows.tokens, len(names))
    after = _sums(taken(codes, picked.position), picked.characters, picked.tokens, len(names))
    return {
        name: {
            "before": _side(before, i),
            "after": _side(after, i),
            "epochs": float(after["characters"][i]) / max(float(before["characters"][i]), 1.0),
        }
        for i, name in enumerate(names)
    }


def _sums(codes: Codes, characters: Sizes, tokens: Sizes, number: int) -> dict[str, npt.NDArray[np.int64]]:
    found = {what: np.zeros(number, np.int64) for what in WHAT}
    for some in slices(len(codes)):
        np.add.at(found["documents"], codes[some], 1)
        np.add.at(found["characters"], codes[some], characters[some])
        np.add.at(found["tokens"], codes[some], tokens[some])
    return found


def _side(sums: Mapping[str, npt.NDArray[np.int64]], index: int) -> dict[str, Any]:
    numbers = {what: int(sums[what][index]) for what in WHAT}
    shares = {what: numbers[what] / max(int(sums[what].sum()), 1) for what in WHAT}
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
    found = [
        text
        for name, target in targets.items()
        for text in _about(name, target, classes[name], plan, unit, max_repeats)
    ]
    return found + (_about_shares(classes) if unit == "documents" else [])


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


def _about_shares(classes: Mapping[str, Any]) -> list[str]:
    """Return a warning where quotas in documents raise the largest class's share of all characters."""
    name = max(classes, key=lambda name: classes[name]["before"]["characters"])
    before, after = (classes[name][side]["shares"]["characters"] for side in ("before", "after"))
    if after <= before:
        return []
    return [
        f"these quotas count documents, and raise {name}, the largest, from {before:.1%} to {after:.1%} "
        "of all characters; --unit characters balances what training sees"
    ]


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
