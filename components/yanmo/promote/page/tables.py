"""Figures of an evaluation as rows that page and scripts read: by length, by source, tasks, the harness.

The champion's figure stands beside the challenger's where it was measured in the same way, else None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from yanmo.promote.gate.evaluation import Evaluation
from yanmo.promote.gate.guards import found

_MOST_SOURCES = 60
_MOST_CHARACTERS = 500
"""Of an answer, its question and its reference."""
_TASKS = (
    ("genre", "accuracy"),
    ("next_line", "accuracy"),
    ("punctuation", "f1"),
    ("punctuation", "precision"),
    ("punctuation", "recall"),
    ("chat", "chrf"),
)
"""Tasks and their figures, in the order of the table."""
Row = dict[str, Any]


def group_rows(name: str, challenger: Evaluation, champion: Evaluation | None) -> dict[str, Row]:
    """Bits per character by `lengths` or `sources`: group -> figures; of sources the largest.

    Returns:
        {group: {"documents", "characters", "bits_per_character", "interval", "few_documents", "champion"}}.
    """
    own: Mapping[str, Any] = challenger.summary.get(name, {})
    other: Mapping[str, Any] = champion.summary.get(name, {}) if champion else {}
    chosen = list(own)
    if len(own) > _MOST_SOURCES:
        chosen = sorted(own, key=lambda group: -int(own[group]["characters"]))[:_MOST_SOURCES]
    return {group: _group(own[group], other.get(group, {})) for group in chosen}


def _group(own: Mapping[str, Any], other: Mapping[str, Any]) -> Row:
    return {
        **{field: own[field] for field in ("documents", "characters", "bits_per_character")},
        "interval": own.get("interval"),
        "few_documents": bool(own.get("few_documents")),
        "champion": other.get("bits_per_character"),
    }


def task_rows(challenger: Evaluation, champion: Evaluation | None) -> dict[str, Any] | None:
    """Our own tasks: {"how": chat or likelihood, "rows": [...], "answers": [...]}; None where none were set.

    Shares are 0 to 1; chrF is 0 to 100. Answers are the challenger's, to held-out chats. The champion's
    figure counts where it was asked as many questions in the same way.
    """
    own = challenger.section("tasks")
    if not isinstance(own, Mapping):
        return None
    other = (champion.section("tasks") if champion else None) or {}
    other = other if other.get("how") == own.get("how") else {}
    rows = [
        _task(task, measure, own[task], other.get(task) or {})
        for task, measure in _TASKS
        if isinstance(own.get(task), Mapping) and measure in own[task]
    ]
    chats = own.get("chat") or {}
    shown = [{name: text[:_MOST_CHARACTERS] for name, text in a.items()} for a in chats.get("answers", ())]
    return {"how": own.get("how"), "rows": rows, "answers": shown} if rows else None


def _task(task: str, measure: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> Row:
    headline = measure in ("accuracy", "f1")
    return {
        "task": task,
        "measure": measure,
        "of": own["of"],
        "value": own[measure],
        "interval": own.get("interval") if headline else None,
        "champion": other.get(measure) if other.get("of") == own["of"] else None,
        "chance": own.get("chance"),
        "obedient": own.get("obedient") if headline else None,
    }


def harness_rows(challenger: Evaluation, champion: Evaluation | None) -> dict[str, Any] | None:
    """Tasks of lm-evaluation-harness: {"version", "rows": [...]}; None where none were run."""
    own = challenger.section("harness")
    if not isinstance(own, Mapping):
        return None
    same = champion is not None and _harness_of(champion) == _harness_of(challenger)
    other = (champion.section("harness") if champion and same else None) or {}
    theirs = {(r["task"], r["metric"]): r["value"] for r in _harness(other)}
    rows = [{**row, "champion": theirs.get((row["task"], row["metric"]))} for row in _harness(own)]
    return {"version": str(own.get("version", "")), "rows": rows} if rows else None


def _harness_of(evaluation: Evaluation) -> tuple[Any, Any]:
    """Which tasks were run, and how many examples of each."""
    manifest = evaluation.output.manifest
    folder = manifest.inputs.get("harness_tasks") or {}
    return folder.get("content_digest"), manifest.options.get("harness_limit")


def _harness(section: Mapping[str, Any]) -> Iterator[Row]:
    """One row per figure; the harness calls it `metric,filter` and its error `metric_stderr,filter`."""
    for task, figures in (section.get("tasks") or {}).items():
        for name in figures:
            metric, comma, how = name.partition(",")
            value = found(figures, name)
            if not comma or metric.endswith("_stderr") or value is None:
                continue
            shown = metric if how == "none" else f"{metric} ({how})"
            error = found(figures, f"{metric}_stderr,{how}")
            yield {"task": task, "metric": shown, "value": value, "error": error}
