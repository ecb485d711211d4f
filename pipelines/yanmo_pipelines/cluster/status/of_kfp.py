"""What KFP says: runs that go on and what they are at, and those that failed last, with their cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo_pipelines.cluster import unmade
from yanmo_pipelines.cluster.follow import failure, was_terminated
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
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
    """Tasks that go on and why a pod of theirs cannot be made, or why the run failed; "" where there is
    nothing to say."""


def runs_of(api: KfpApi, most: int, kubernetes: KubernetesApi | None = None) -> list[Run]:
    """The newest runs, newest first: all that go on, and of the others what happened last.

    Args:
        kubernetes: asked for what KFP does not hand on: which pod was killed for its memory, and which was
            refused (a quota, a missing service account). None where there is none.
    """
    return [_run(api, each, kubernetes) for each in api.runs(most)]


def _run(api: KfpApi, run: Mapping[str, Any], kubernetes: KubernetesApi | None) -> Run:
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
        return Run(**{**vars(found), "at": failure(api, whole, tasks, kubernetes)[1]})
    going = [
        f"{task.name} {task.state.lower()}" for task in tasks.values() if task.state and not task.has_ended
    ]
    refused = _refused(kubernetes, found.id)
    return Run(**{**vars(found), "at": "; ".join([", ".join(going), *refused] if going else refused)})


def _refused(kubernetes: KubernetesApi | None, run_id: str) -> list[str]:
    try:
        return unmade.of_run(kubernetes, run_id) if kubernetes else []
    except (OSError, ValueError, RuntimeError):  # what tasks go on is worth showing without it
        return []
