"""What KFP and Kubernetes say: runs, Jobs and pods; where they are, what they wait for, how they ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.common.words import visible
from yanmo_pipelines.cluster.follow import failure, was_terminated
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.pods import (
    ended_state,
    how_job_ended,
    pods_by,
    task_of,
    waits_for,
    why_no_pod_of_job,
    why_no_pod_of_run,
)
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.cluster.run_tasks import task_names, tasks_of

_OURS = "app.kubernetes.io/name=yanmo"
_KFPS = "pipeline/runid"
_LIVING = "status.phase!=Succeeded,status.phase!=Failed"
_SUSPENDED = 'suspended: kubectl patch job NAME -p \'{"spec":{"suspend":false}}\' lets it go on'


@dataclass(frozen=True)
class Run:
    """A run of KFP's."""

    id: str
    name: str
    state: str
    """As KFP says it, or TERMINATED."""
    created: str
    """UTC, ISO 8601."""
    at: str = ""
    """Tasks that go on and why a pod of theirs cannot be made, or why the run failed; "" where there is
    nothing to say."""


@dataclass(frozen=True)
class Pod:
    """A pod that has not ended."""

    name: str
    task: str
    run_id: str
    """Of KFP; "" for a Job's."""
    state: str
    """running, starting or waits."""
    where: str
    """Its node, or what it waits for."""
    since: str
    """UTC, ISO 8601."""


@dataclass(frozen=True)
class Job:
    """A Job of a stage."""

    name: str
    uid: str
    stage: str
    state: str
    """running, suspended, complete, failed."""
    why: str
    created: str
    said: tuple[str, ...] = ()
    """Of one that failed, the card that its last pod left."""


def runs_of(api: KfpApi, most: int, kubernetes: KubernetesApi | None = None) -> list[Run]:
    """The newest runs, newest first: all that go on, and of the others what happened last.

    Args:
        kubernetes: asked for what KFP does not hand on: which pod was killed for its memory, and which was
            refused (a quota, a missing service account). None where there is none.
    """
    return [_run(api, each, kubernetes) for each in api.runs(most)]


def state_of_run(api: KfpApi, run_id: str) -> str:
    """`Run.state` of any run, however old; "" where KFP has none of this id."""
    try:
        return _state(api.run(run_id))
    except NotFound:
        return ""


def _state(run: Mapping[str, Any]) -> str:
    return "TERMINATED" if was_terminated(run) else str(run.get("state", "?"))


def _run(api: KfpApi, run: Mapping[str, Any], kubernetes: KubernetesApi | None) -> Run:
    state = _state(run)
    found = Run(
        id=str(run["run_id"]),
        name=str(run.get("display_name", "")),
        state=state,
        created=str(run.get("created_at", "")),
    )
    if state in ("SUCCEEDED", "SKIPPED", "CANCELED", "TERMINATED"):
        return found
    whole = run if (run.get("run_details") or {}).get("task_details") else api.run(found.id)
    tasks = tasks_of(whole, task_names(api, whole))
    if state == "FAILED":
        return dataclasses.replace(found, at=failure(api, whole, tasks, kubernetes)[1])
    going = ", ".join(f"{t.name} {t.state.lower()}" for t in tasks.values() if t.state and not t.has_ended)
    refused = why_no_pod_of_run(kubernetes, found.id) if kubernetes else []
    return dataclasses.replace(found, at="; ".join(filter(None, [going, *refused])))


def pods_now(api: KubernetesApi) -> list[Pod]:
    """The pods of runs and of stages' Jobs that have not ended, oldest first."""
    listed = [pod for of in (_OURS, _KFPS) for pod in pods_by(api, of, fieldSelector=_LIVING)]
    found = {pod["metadata"]["name"]: _pod(pod) for pod in listed}
    return sorted(found.values(), key=lambda pod: (pod.since, pod.name))


def _pod(pod: Mapping[str, Any]) -> Pod:
    meta, why = pod["metadata"], waits_for(pod)
    running = (pod.get("status") or {}).get("phase") == "Running"
    return Pod(
        name=meta["name"],
        task=task_of(pod),
        run_id=(meta.get("labels") or {}).get(_KFPS, ""),
        state="waits" if why else "running" if running else "starting",
        where=why or (pod.get("spec") or {}).get("nodeName", ""),
        since=meta.get("creationTimestamp", ""),
    )


def jobs_now(api: KubernetesApi, most: int) -> list[Job]:
    """Jobs of stages, newest first: all that go on, and the newest of those that ended."""
    path = api.in_namespace("jobs", group="apis/batch/v1")
    jobs = [_job(api, job) for job in api.listed(path, "list Jobs", labelSelector=_OURS)]
    newest = sorted(jobs, key=lambda job: job.created, reverse=True)
    going = [job for job in newest if job.state in ("running", "suspended")]
    ended = [job for job in newest if job not in going][:most]
    return [*going, *(_with_card(api, job) if job.state == "failed" else job for job in ended)]


def states_of_jobs(api: KubernetesApi) -> dict[str, str]:
    """Uid of each Job of the namespace, whoever made it -> `Job.state`; "" while it goes on."""
    jobs = api.listed(api.in_namespace("jobs", group="apis/batch/v1"), "list Jobs")
    return {str(job["metadata"].get("uid", "")): how_job_ended(job)[0].lower() for job in jobs}


def _job(api: KubernetesApi, job: Mapping[str, Any]) -> Job:
    meta, status = job["metadata"], job.get("status") or {}
    labels = meta.get("labels") or {}
    ended, message = how_job_ended(job)
    state = ended.lower() or "running"
    if not ended and (job.get("spec") or {}).get("suspend"):
        state, message = "suspended", _SUSPENDED.replace("NAME", meta["name"])
    if state == "running" and not any(status.get(count) for count in ("active", "ready", "terminating")):
        message = "; ".join(why_no_pod_of_job(api, meta["name"]))
    return Job(
        name=meta["name"],
        uid=str(meta.get("uid", "")),
        stage=labels.get("yanmo.dev/stage") or labels.get("app.kubernetes.io/component", ""),
        state=state,
        why=message if state != "complete" else "",
        created=meta.get("creationTimestamp", ""),
    )


def _with_card(api: KubernetesApi, job: Job) -> Job:
    """A Job that failed, with the last message of its pods."""
    pods = pods_by(api, f"batch.kubernetes.io/job-name={job.name}")
    ends = [end for pod in pods if (end := ended_state(pod))]
    lines = str(ends[-1].get("message") or "").splitlines() if ends else []
    return dataclasses.replace(job, said=tuple(visible(line) for line in lines))
