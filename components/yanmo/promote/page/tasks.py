"""Tasks of an evaluation as rows that page and scripts read.

Each row has the challenger's value and the champion's; that is None where it was not measured in the same
way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.promote.gate.evaluation import Evaluation

_MOST_CHARACTERS = 500
"""The most characters shown of an answer, its question and its reference."""
_TASKS = (
    ("genre", "accuracy"),
    ("next_line", "accuracy"),
    ("punctuation", "f1"),
    ("punctuation", "precision"),
    ("punctuation", "recall"),
    ("chat", "chrf"),
)
"""Tasks and their metrics, in the order of the table."""
Row = dict[str, Any]


def task_rows(
    challenger: Evaluation, champion: Evaluation | None, base: Evaluation | None = None
) -> dict[str, Any] | None:
    """Our own tasks: {"rows": [...], "answers": [...]}; None where none were set.

    Shares are 0 to 1; chrF is 0 to 100. Answers are those to held-out chats. The champion's and the base's
    are shown where they were asked as many questions.
    """
    own = challenger.section("tasks")
    if not isinstance(own, Mapping):
        return None
    others = {"champion": _tasks_of(champion), "base": _tasks_of(base)}
    rows = [
        _task(task, measure, own[task], {name: other.get(task) or {} for name, other in others.items()})
        for task, measure in _TASKS
        if isinstance(own.get(task), Mapping) and measure in own[task]
    ]
    answers = [_answer(each, others) for each in (own.get("chat") or {}).get("answers", ())]
    return {"rows": rows, "answers": answers} if rows else None


def _tasks_of(other: Evaluation | None) -> Mapping[str, Any]:
    return (other.section("tasks") if other else None) or {}


def _answer(own: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Row:
    """An answer with its question and reference, beside what the others answered to the same question."""
    said: Row = dict(own)
    for name, other in others.items():
        answered = (other.get("chat") or {}).get("answers", ())
        said[name] = next((each["answer"] for each in answered if each["asked"] == own["asked"]), None)
    return {name: None if text is None else text[:_MOST_CHARACTERS] for name, text in said.items()}


def _task(task: str, measure: str, own: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Row:
    headline = measure in ("accuracy", "f1")
    beside = {
        name: other.get(measure) if other.get("of") == own["of"] else None for name, other in others.items()
    }
    return {
        "task": task,
        "measure": measure,
        "of": own["of"],
        "value": own[measure],
        "interval": own.get("interval") if headline else None,
        **beside,
        "chance": own.get("chance"),
        "obedient": own.get("obedient") if headline else None,
    }
