"""Pods and Jobs of the namespace, in Kubernetes' own words: what they wait for, why they are not made, how
they ended.

Of a pod that was refused before it was made (a quota, a missing service account, pod security) no pod tells:
of a Job its events do, of a run of KFP's the message that Argo writes to the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.refusals import Forbidden, NotFound

_NODE_NAME = "workflows.argoproj.io/node-name"
"""Annotation of Argo's pods: `language-model-7z9q7(0).root(0).train(0).executor(0)`."""
_FINE = ("PodInitializing", "ContainerCreating")
_NAMES = re.compile(r'pods? "[^"]*"')
_TOO_LITTLE = (
    "it needed more memory than its limit; submit the same again, as a training goes on with half the rows "
    "of a micro batch, or give more (training_pod_memory on the form, for other stages --resources)"
)
_REFUSED = re.compile(r"forbidden|exceeded quota|not found|violates")


def pods_by(api: KubernetesApi, selector: str, **query: str) -> list[dict[str, Any]]:
    """The pods of a label selector, oldest first."""
    found = api.listed(api.in_namespace("pods"), "list pods", labelSelector=selector, **query)
    return sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))


def started(pod: Mapping[str, Any]) -> bool:
    """Return whether its container began, so that it has a log."""
    return any("running" in state or "terminated" in state for state in _states(pod))


def ended_state(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how its container ended: exitCode, reason, message; None while it runs."""
    return next((state["terminated"] for state in _states(pod) if state.get("terminated")), None)


def _states(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return [container.get("state") or {} for container in containers]


def how_job_ended(job: Mapping[str, Any]) -> tuple[str, str]:
    """`Complete` or `Failed` with its message; "" while it goes on."""
    for kind in ("Complete", "Failed"):
        if (condition := true_condition(job, kind)) is not None:
            return kind, str(condition.get("message") or "")
    return "", ""


def true_condition(found: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return the condition of an object that is called `kind`, where it holds."""
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == kind and one.get("status") == "True"), None)


def waits_for(pod: Mapping[str, Any]) -> str:
    """Return what a pod waits for; "" where it does not, or is just being set up."""
    status = pod.get("status") or {}
    if status.get("phase") != "Pending":
        return ""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return one_line(condition.get("message") or condition.get("reason") or "not scheduled")
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = (container.get("state") or {}).get("waiting") or {}
        if state.get("reason") and state["reason"] not in _FINE:
            message = f": {one_line(state['message'])}" if state.get("message") else ""
            return f"{state['reason']} of {container.get('image', 'its image')}{message}"
    return ""


def task_of(pod: Mapping[str, Any]) -> str:
    """The task of a pod of KFP's, the stage of one of ours, else the pod's own name."""
    meta = pod["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    node = str(annotations.get(_NODE_NAME, ""))
    if ".root(" in node:
        return _task(node)
    return str(labels.get("yanmo.dev/stage") or _task(node) or meta["name"])


def _task(node: str) -> str:
    parts = [part.partition("(")[0] for part in node.split(".")]
    return parts[parts.index("root") + 1] if "root" in parts[1:-1] else parts[-1]


def why_no_pod_of_job(api: KubernetesApi, name: str) -> list[str]:
    """Return why Kubernetes does not make the pods of a Job; each reason once."""
    selector = f"involvedObject.kind=Job,involvedObject.name={name},reason=FailedCreate"
    try:
        path = api.in_namespace("events")
        found = list(api.listed(path, f"list events of Job {name}", fieldSelector=selector))
    except (Forbidden, NotFound) as error:
        return [f"why no pod is made cannot be asked: {error}"]
    return _once(str(event.get("message", "")) for event in found)


def why_no_pod_of_run(api: KubernetesApi, run_id: str) -> list[str]:
    """Return why Argo cannot make a pod of a run of KFP's: `train: ...`; each reason once."""
    said = _said_of_pods(api, run_id, ("Pending", "Error"))
    return _once(f"{task}: {message}" for task, message in said if _REFUSED.search(message))


def how_pod_of_run_ended(api: KubernetesApi, run_id: str, task: str) -> str:
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
    except (OSError, ValueError, RuntimeError):  # pods and KFP tell of most; this is for the rest
        return []
    nodes = [
        node
        for workflow in found
        for node in ((workflow.get("status") or {}).get("nodes") or {}).values()
        if node.get("type") == "Pod" and node.get("phase") in phases and node.get("message")
    ]
    nodes.sort(key=lambda node: str(node.get("startedAt", "")))
    return [(_task(str(node.get("name", ""))), str(node["message"])) for node in nodes]


def _once(messages: Iterable[str]) -> list[str]:
    """Without the names of pods, which differ from one try to the next, and in one line."""
    lines = (one_line(_NAMES.sub("its pod", message)) for message in messages)
    return list(dict.fromkeys(filter(None, lines)))


def one_line(text: str) -> str:
    """Return a message in one line of at most 400 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 400 else f"{line[:397]}..."
