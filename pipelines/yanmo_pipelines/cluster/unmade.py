"""Pods that were refused before they were made (a quota, a missing service account, pod security), and why;
and those of a run that ended without a word of their stage.

No pod tells of the first. Of a Job its events do; of a run of KFP's the message that Argo writes to the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.refusals import Forbidden, NotFound

_NAMES = re.compile(r'pods? "[^"]*"')
_TOO_LITTLE = (
    "it needed more memory than its limit; submit the same again, as a training goes on with half the rows "
    "of a micro batch, or give more (training_pod_memory on the form, for other stages --resources)"
)
_REFUSED = re.compile(r"forbidden|exceeded quota|not found|violates")


def of_job(api: KubernetesApi, name: str) -> list[str]:
    """Return why Kubernetes does not make the pods of a Job; each reason once."""
    selector = f"involvedObject.kind=Job,involvedObject.name={name},reason=FailedCreate"
    try:
        path = api.in_namespace("events")
        found = list(api.listed(path, f"list events of Job {name}", fieldSelector=selector))
    except (Forbidden, NotFound) as error:
        return [f"why no pod is made cannot be asked: {error}"]
    return _once(str(event.get("message", "")) for event in found)


def of_run(api: KubernetesApi, run_id: str) -> list[str]:
    """Return why Argo cannot make a pod of a run of KFP's: `train: ...`; each reason once."""
    said = _said_of_pods(api, run_id, ("Pending", "Error"))
    return _once(f"{task}: {message}" for task, message in said if _REFUSED.search(message))


def ended_of_run(api: KubernetesApi, run_id: str, task: str) -> str:
    """Return what Argo says of a task's last pod (`main: OOMKilled (exit code 137)`), and what to do."""
    said = [message for name, message in _said_of_pods(api, run_id, ("Failed", "Error")) if name == task]
    last = said[-1] if said else ""
    return f"{last}: {_TOO_LITTLE}" if "OOMKilled" in last else last


def _said_of_pods(api: KubernetesApi, run_id: str, phases: tuple[str, ...]) -> list[tuple[str, str]]:
    """Task and message of the run's pods in these phases, the first that began first."""
    path = api.in_namespace("workflows", group="apis/argoproj.io/v1alpha1")
    selector = f"pipeline/runid={run_id}"
    try:
        found = list(api.listed(path, f"read the workflow of run {run_id}", labelSelector=selector))
    except (Forbidden, NotFound):  # pods tell of most that waits; this is for the rest
        return []
    nodes = [
        node
        for workflow in found
        for node in ((workflow.get("status") or {}).get("nodes") or {}).values()
        if node.get("type") == "Pod" and node.get("phase") in phases and node.get("message")
    ]
    nodes.sort(key=lambda node: str(node.get("startedAt", "")))
    return [(_task(str(node.get("name", ""))), str(node["message"])) for node in nodes]


def _task(node: str) -> str:
    parts = [part.partition("(")[0] for part in node.split(".")]
    return parts[parts.index("root") + 1] if "root" in parts[1:-1] else parts[-1]


def _once(messages: Iterator[str]) -> list[str]:
    """Without the names of pods, which differ from one try to the next, and in one line."""
    lines = (" ".join(_NAMES.sub("its pod", message).split()) for message in messages)
    return list(dict.fromkeys(line if len(line) <= 400 else f"{line[:397]}..." for line in lines if line))
