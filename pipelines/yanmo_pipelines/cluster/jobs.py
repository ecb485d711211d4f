"""Jobs of the namespace and their pods, as status and doctor look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi


def pods_of_job(api: KubernetesApi, name: str) -> list[dict[str, Any]]:
    """The pods of a Job, oldest first."""
    selector = f"batch.kubernetes.io/job-name={name}"
    found = api.listed(api.in_namespace("pods"), f"list pods of Job {name}", labelSelector=selector)
    return sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))


def started(pod: Mapping[str, Any]) -> bool:
    """Return whether its container began, so that it has a log."""
    return any(
        state in (container.get("state") or {})
        for container in (pod.get("status") or {}).get("containerStatuses") or []
        for state in ("running", "terminated")
    )


def ended_state(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how its container ended: exitCode, reason, message; None while it runs."""
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        found = (container.get("state") or {}).get("terminated")
        if found:
            return dict(found)
    return None


def last_message(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the termination message of the last of these pods that ended: a stage's card, line by line."""
    ends = [end for pod in pods if (end := ended_state(pod))]
    return str(ends[-1].get("message") or "").splitlines() if ends else []


def how_job_ended(job: Mapping[str, Any]) -> tuple[str, str]:
    """`Complete` or `Failed` with its message; "" while it goes on."""
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return condition["type"], condition.get("message", "")
    return "", ""
