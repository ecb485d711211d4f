"""A run of KFP as a person thinks of it: its tasks, their times, and what their pods said.

KFP lists every node of Argo's graph, a dozen a task, by names that say little: `curate`, `curate(0)`,
`curate-driver`, `executor`, `executor(0)`. The pipeline's own tasks are those of its root. No link leads from
a task to its pod but time: the node `executor` begins with its task. Two tasks may begin together, so what a
pod says is taken for a task's only where its log names the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from yanmo.common.logs import last_words_in, read_line
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.refusals import NotFound

ENDED = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")


@dataclass(frozen=True)
class Task:
    """One task of the pipeline."""

    name: str
    state: str
    """PENDING, RUNNING, SUCCEEDED, FAILED, CANCELED, SKIPPED or "" while it has not begun."""
    began: datetime | None
    ended: datetime | None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def seconds(self) -> float | None:
        return (self.ended - self.began).total_seconds() if self.began and self.ended else None


def task_names(api: KfpApi, run: Mapping[str, Any]) -> list[str]:
    """The tasks of the run's pipeline, in order of what they wait for.

    Where its version was deleted, those of its nodes that have a driver, which are those that have begun.
    """
    spec = run.get("pipeline_spec")
    reference = run.get("pipeline_version_reference") or {}
    if not spec and reference.get("pipeline_version_id"):
        try:
            found = api.version(reference.get("pipeline_id", ""), reference["pipeline_version_id"])
        except NotFound:
            names = {str(node.get("display_name", "")) for node in _nodes(run)}
            return sorted(name for name in names - {"root"} if f"{name}-driver" in names)
        spec = found.get("pipeline_spec")
    spec = (spec or {}).get("pipeline_spec", spec or {})
    tasks = (spec.get("root") or {}).get("dag", {}).get("tasks", {})
    return _in_order({name: list(task.get("dependentTasks") or []) for name, task in tasks.items()})


def _in_order(waits_for: dict[str, list[str]]) -> list[str]:
    found: list[str] = []
    while left := [name for name in waits_for if name not in found]:
        free = [name for name in left if set(waits_for[name]) & waits_for.keys() <= set(found)]
        found += sorted(free) or left
    return found


def tasks_of(run: Mapping[str, Any], names: list[str]) -> dict[str, Task]:
    """Each of the run's tasks as it is now, by name."""
    found = {name: Task(name, "", None, None) for name in names}
    for node in _nodes(run):
        name = node.get("display_name", "")
        if name in found:
            found[name] = Task(
                name, node.get("state", ""), time_of(node, "start_time"), time_of(node, "end_time")
            )
    return found


def _nodes(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (run.get("run_details") or {}).get("task_details") or []


def time_of(node: Mapping[str, Any], name: str) -> datetime | None:
    """A time that KFP tells of a run or a node: it says 1970 or the year 1 for "not yet"."""
    text = str(node.get(name, ""))
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.year > 1970 else None


def pods_beside(run: Mapping[str, Any], task: Task) -> Iterator[str]:
    """Argo's ids of the pods that may be the task's, the last of its tries first."""
    for node in _nodes(run):
        if node.get("display_name") == "executor" and time_of(node, "start_time") == task.began:
            children = [child.get("pod_name", "") for child in node.get("child_tasks") or []]
            yield from reversed([child for child in children if child])


def own_lines(log: str) -> list[tuple[str, str]]:
    """Stage and text of each line that a stage wrote; others are of KFP's launcher and libraries."""
    lines = (read_line(text) for text in log.splitlines())
    return [(line.stage, line.message) for line in lines if line]


@dataclass(frozen=True)
class Said:
    """How a stage ended, by its own words."""

    code: int
    """0 where it said nothing of an error."""
    cause: str
    lines: list[str]
    """The last lines of its log."""


def said_by(api: KfpApi, run: Mapping[str, Any], task: Task) -> Said | None:
    """Return what the task's stage said last; None where no log of it is to be had."""
    for node in pods_beside(run, task):
        try:
            log = api.log(run["run_id"], node)
        except (OSError, ValueError, RuntimeError):
            continue
        lines = own_lines(log)
        if lines and task.name.startswith(lines[-1][0]):
            ended = last_words_in([text for _, text in lines])
            return Said(ended.code, ended.cause, ended.before[-6:])
    return None
