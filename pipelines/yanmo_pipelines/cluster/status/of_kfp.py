"""What KFP says: runs that go on and what they are at, and those that failed last, with their cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo_pipelines.cluster.follow import failure, was_terminated
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.run_tasks import task_names, tasks_of

_OVER = ("SUCCEEDED", "SKIPPED", "CANCELED")


@dataclass(frozen=True)
class Run:
    """One run."""

    id: str
    name: str
    state: str
    created: str
    """UTC, ISO 8601."""
    at: str
    """Tasks that go on, or why it failed; "" where there is nothing to say."""


def runs_of(api: KfpApi, most: int) -> list[Run]:
    """The newest runs, newest first: all that go on, and of the others what happened last."""
    return [_run(api, each) for each in api.runs(most)]


def _run(api: KfpApi, run: Mapping[str, Any]) -> Run:
    state = "TERMINATED" if was_terminated(run) else str(run.get("state", "?"))
    found = Run(
        id=str(run["run_id"]),
        name=str(run.get("display_name", "")),
        state=state,
        created=str(run.get("created_at", "")),
        at="",
    )
    if state in _OVER or state == "TERMINATED":
        return found
    whole = run if (run.get("run_details") or {}).get("task_details") else api.run(found.id)
    tasks = tasks_of(whole, task_names(api, whole))
    if state == "FAILED":
        return Run(**{**vars(found), "at": failure(api, whole, tasks)[1]})
    going = [
        f"{task.name} {task.state.lower()}" for task in tasks.values() if task.state and not task.has_ended
    ]
    return Run(**{**vars(found), "at": ", ".join(going)})
