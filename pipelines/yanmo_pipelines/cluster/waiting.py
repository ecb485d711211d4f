"""Pods that wait, and what for, in Kubernetes' own words: its scheduler's, or about an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi

_NODE_NAME = "workflows.argoproj.io/node-name"
"""Annotation of Argo's pods: `language-model-7z9q7(0).root(0).train(0).executor(0)`."""
_FINE = ("PodInitializing", "ContainerCreating")


@dataclass(frozen=True)
class Waiting:
    """A pod that waits."""

    pod: str
    what: str
    """Its task, or its own name."""
    why: str
    since: str
    """UTC, ISO 8601."""


def waiting_pods(kubernetes: KubernetesApi, selector: str) -> list[Waiting]:
    """The pods of a label selector that wait for something other than their turn to begin."""
    pods = kubernetes.listed(
        kubernetes.in_namespace("pods"),
        "list pods",
        labelSelector=selector,
        fieldSelector="status.phase=Pending",
    )
    found = [waiting(pod) for pod in pods]
    return [one for one in found if one]


def waiting(pod: Mapping[str, Any]) -> Waiting | None:
    """Return what a pod waits for; None where it does not, or is just being set up."""
    status, meta = pod.get("status") or {}, pod["metadata"]
    if status.get("phase") != "Pending":
        return None
    why = _why(status)
    if not why:
        return None
    return Waiting(meta["name"], task_of(pod), why, meta.get("creationTimestamp", ""))


def _why(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _one_line(condition.get("message") or condition.get("reason") or "not scheduled")
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = (container.get("state") or {}).get("waiting") or {}
        if state.get("reason") and state["reason"] not in _FINE:
            message = f": {_one_line(state['message'])}" if state.get("message") else ""
            return f"{state['reason']} of {container.get('image', 'its image')}{message}"
    return ""


def task_of(pod: Mapping[str, Any]) -> str:
    """The task of a pod of KFP's, the stage of one of ours, else the pod's own name."""
    meta = pod["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    parts = [part.partition("(")[0] for part in str(annotations.get(_NODE_NAME, "")).split(".")]
    if "root" in parts[1:-1]:
        return parts[parts.index("root") + 1]
    return str(labels.get("yanmo.dev/stage") or (parts[-1] if len(parts) > 1 else "") or meta["name"])


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:297]}..."
