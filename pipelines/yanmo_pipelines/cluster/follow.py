"""Follows a run of KFP to its end: tasks as they start and end, what waits and why, the verdict."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from yanmo.common.answers import answer
from yanmo.common.errors import ExitCode
from yanmo.common.logs import human_seconds
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.pods import how_pod_of_run_ended, pods_by, task_of, waits_for, why_no_pod_of_run
from yanmo_pipelines.cluster.refusals import patiently
from yanmo_pipelines.cluster.run_tasks import ENDED, Task, said_by, task_names, tasks_of, time_of

log = logging.getLogger(__name__)

_LOOKS = 5
"""So often is looked again at a run that has ended while its tasks are said to go on."""


def follow(api: KfpApi, run_id: str, kubernetes: KubernetesApi | None, look_seconds: float) -> int:
    """Follow a run to its end; the exit code: 0, that of the stage that failed, else see `failure`.

    Args:
        kubernetes: asked why pods wait; None where there is none.
        look_seconds: between two looks.

    Raises:
        NoAnswer: KFP was away for too long.
    """
    run = api.run(run_id)
    names, shown, said, asked = task_names(api, run), dict[str, Task](), set[str](), kubernetes
    while True:
        if has_ended := run.get("state") in ENDED:
            run = _settled(api, run, names, look_seconds)
        tasks = tasks_of(run, names)
        for name, task in tasks.items():
            if task != shown.get(name):
                _show(task, shown.get(name))
        shown = tasks
        if has_ended:
            return _ended(api, run, tasks, kubernetes)
        if asked:
            try:
                lines = _waits(run_id, asked)
            except (OSError, ValueError, RuntimeError) as error:
                lines, asked = [f"what pods wait for cannot be asked: {error}"], None
            for line in lines:
                if line not in said:
                    log.info("%s", line)
                said.add(line)
        time.sleep(look_seconds)
        run = patiently(lambda: api.run(run_id), "the run", look_seconds)


def _show(task: Task, before: Task | None) -> None:
    if not task.state or task.state == (before.state if before else ""):
        return
    if task.state == "SUCCEEDED":
        log.info("%s: done in %s", task.name, human_seconds(task.seconds or 0))
    elif task.has_ended:
        log.info("%s: %s after %s", task.name, task.state.lower(), human_seconds(task.seconds or 0))
    else:
        log.info("%s: %s", task.name, task.state.lower())


def _waits(run_id: str, kubernetes: KubernetesApi) -> list[str]:
    """Return what pods of the run wait for, and why others are not made."""
    pods = pods_by(kubernetes, f"pipeline/runid={run_id}", fieldSelector="status.phase=Pending")
    waiting = [f"{task_of(pod)} waits: {why}" for pod in pods if (why := waits_for(pod))]
    return [*waiting, *why_no_pod_of_run(kubernetes, run_id)]


def _ended(
    api: KfpApi, run: Mapping[str, Any], tasks: Mapping[str, Task], kubernetes: KubernetesApi | None
) -> int:
    """Print how the run ended; the exit code."""
    state = run.get("state")
    if state == "SUCCEEDED":
        _show_verdict(api, run, tasks)
        return ExitCode.DONE
    if state == "CANCELED" or was_terminated(run):
        log.error("the run was terminated; finished stages are kept: submit the same again to go on")
        return ExitCode.RETRY
    code, why = failure(api, run, tasks, kubernetes)
    log.error("%s", why)
    return code


def _settled(api: KfpApi, run: dict[str, Any], names: list[str], look_seconds: float) -> dict[str, Any]:
    """The run once its tasks are told as they ended: KFP writes down the run's own state before theirs."""
    for _ in range(_LOOKS):
        going = [task for task in tasks_of(run, names).values() if task.state in ("RUNNING", "PENDING")]
        if not going:
            break
        time.sleep(look_seconds)
        run = api.run(run["run_id"])
    return run


def _show_verdict(api: KfpApi, run: Mapping[str, Any], tasks: Mapping[str, Task]) -> None:
    began, done = time_of(run, "created_at"), time_of(run, "finished_at")
    if began and done:
        log.info("the run took %s", human_seconds((done - began).total_seconds()))
    last = next((task for task in reversed(list(tasks.values())) if task.has_ended), None)
    said = said_by(api, run, last) if last else None
    if last and said:
        answer(f"{last.name}  {said.lines[-1]}")


def was_terminated(run: Mapping[str, Any]) -> bool:
    """Return whether somebody ended the run; KFP 2.17 then calls it FAILED."""
    return any(one.get("state") == "CANCELING" for one in run.get("state_history") or [])


def failure(
    api: KfpApi,
    run: Mapping[str, Any],
    tasks: Mapping[str, Task],
    kubernetes: KubernetesApi | None = None,
) -> tuple[int, str]:
    """The exit code of a failed run and its cause, in one line.

    It is the stage's own code where its log tells. Else the pod never came so far (its image, the node, the
    memory, KFP's driver): 78, something of the cluster, and what Argo says of the pod where that can be
    asked.
    """
    failed = [task for task in tasks.values() if task.state == "FAILED"]
    failed = failed or [task for task in tasks.values() if task.state in ("RUNNING", "PENDING")]
    for task in failed:
        if (said := said_by(api, run, task)) and said.code:
            return said.code, f"{task.name} failed with exit code {said.code}: {said.cause}"
    named = ", ".join(task.name for task in failed)
    message = (run.get("error") or {}).get("message", "")
    for task in failed:
        if kubernetes and (why := how_pod_of_run_ended(kubernetes, str(run["run_id"]), task.name)):
            return ExitCode.ENVIRONMENT, f"{task.name} failed without a word of its own: {why}"
    if named:
        return ExitCode.ENVIRONMENT, (
            f"{named} failed without a word of its own{_said_by_kfp(message)}: killed, out of memory, or its "
            "pod never began; the pod's events say more: `kubectl describe pod`"
        )
    return ExitCode.ENVIRONMENT, (
        f"the run failed before a task began{_said_by_kfp(message)}; the log of KFP's driver pod says why"
    )


def _said_by_kfp(message: str) -> str:
    return f" ({' '.join(message.split())[:200]})" if message else ""
