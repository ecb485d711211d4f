"""What Kubernetes says: pods of runs and Jobs, where they run, what they wait for; and how Jobs ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.common.answers import visible
from yanmo_pipelines.cluster import unmade
from yanmo_pipelines.cluster.jobs import how_job_ended, last_message, pods_of_job
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.cluster.waiting import task_of, waiting

_OURS = "app.kubernetes.io/name=yanmo"
_KFPS = "pipeline/runid"
_LIVING = "status.phase!=Succeeded,status.phase!=Failed"
_SUSPENDED = 'suspended: kubectl patch job NAME -p \'{"spec":{"suspend":false}}\' lets it go on'


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
    stage: str
    state: str
    """running, suspended, complete, failed."""
    why: str
    created: str
    said: tuple[str, ...] = ()
    """Of one that failed, the card that its last pod left."""


def pods_now(api: KubernetesApi) -> list[Pod]:
    """The pods of runs and of stages' Jobs that have not ended, oldest first."""
    found: dict[str, Mapping[str, Any]] = {}
    for selector in (_OURS, _KFPS):
        path = api.in_namespace("pods")
        for pod in api.listed(path, "list pods", labelSelector=selector, fieldSelector=_LIVING):
            found[pod["metadata"]["name"]] = pod
    return sorted((_pod(pod) for pod in found.values()), key=lambda pod: (pod.since, pod.name))


def _pod(pod: Mapping[str, Any]) -> Pod:
    meta, node = pod["metadata"], (pod.get("spec") or {}).get("nodeName", "")
    waits = waiting(pod)
    running = (pod.get("status") or {}).get("phase") == "Running"
    return Pod(
        name=meta["name"],
        task=task_of(pod),
        run_id=(meta.get("labels") or {}).get(_KFPS, ""),
        state="waits" if waits else "running" if running else "starting",
        where=waits.why if waits else node,
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


def _with_card(api: KubernetesApi, job: Job) -> Job:
    try:
        pods = pods_of_job(api, job.name)
    except NotFound:  # it was deleted this moment
        return job
    return dataclasses.replace(job, said=tuple(visible(line) for line in last_message(pods)))


def _job(api: KubernetesApi, job: Mapping[str, Any]) -> Job:
    meta, status = job["metadata"], job.get("status") or {}
    labels = meta.get("labels") or {}
    ended, message = how_job_ended(job)
    state = {"Complete": "complete", "Failed": "failed"}.get(ended, "running")
    if not ended and (job.get("spec") or {}).get("suspend"):
        state, message = "suspended", _SUSPENDED.replace("NAME", meta["name"])
    if state == "running" and not any(status.get(count) for count in ("active", "ready", "terminating")):
        message = "; ".join(unmade.of_job(api, meta["name"]))
    return Job(
        name=meta["name"],
        stage=labels.get("yanmo.dev/stage") or labels.get("app.kubernetes.io/component", ""),
        state=state,
        why=message if state != "complete" else "",
        created=meta.get("creationTimestamp", ""),
    )
