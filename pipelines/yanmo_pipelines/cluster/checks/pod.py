"""What only a pod of the cluster can tell: whether the store is reached from there, and its image pulled."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from yanmo_pipelines import resources
from yanmo_pipelines.cluster.checks.finding import Asked, Finding
from yanmo_pipelines.cluster.jobs import ended_state, pods_of_job, started
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.waiting import waiting

_SECONDS = 180.0


def in_pod(asked: Asked) -> Iterator[Finding]:
    """The checks that a pod makes; none unless asked for."""
    if not asked.options.in_pod:
        yield Finding("pod", "left", "nothing was tried from a pod", "--in-pod starts one, for a minute")
        return
    api = asked.kubernetes
    name = f"yanmo-doctor-{uuid.uuid4().hex[:8]}"
    path = api.in_namespace("jobs", group="apis/batch/v1")
    api.create(path, f"start Job {name}", job(name, asked.options))
    try:
        yield from _said_by(api, name, asked.options.look_seconds)
    finally:
        if api.may("delete", "jobs", group="batch"):  # else its TTL removes it
            api.delete(f"{path}/{name}", f"delete Job {name}")


def _said_by(api: KubernetesApi, name: str, look_seconds: float) -> Iterator[Finding]:
    deadline, why = time.monotonic() + _SECONDS, ""
    while time.monotonic() < deadline:
        pods = pods_of_job(api, name)
        waits = [found for pod in pods if (found := waiting(pod))]
        why = waits[0].why if waits else why
        if any(started(pod) and ended_state(pod) for pod in pods):
            (pod, *_) = [pod for pod in pods if started(pod) and ended_state(pod)]
            yield from _findings(api, pod)
            return
        time.sleep(look_seconds)
    yield Finding(
        "pod",
        "bad",
        f"a pod of image {resources.IMAGES['cluster']} did not end within {_SECONDS:.0f} s"
        + (f": {why}" if why else ""),
        "mend what it waits for; --image-prefix names the registry that the nodes pull from",
    )


def _findings(api: KubernetesApi, pod: dict[str, Any]) -> Iterator[Finding]:
    name = pod["metadata"]["name"]
    text = api.log(name).decode("utf-8", "replace")
    yield Finding("pod", "ok", f"a pod of image {pod['spec']['containers'][0]['image']} ran")
    for line in text.splitlines():
        line = line.partition(" ")[2]  # after Kubernetes' own time
        if line.startswith('{"check"'):
            found = json.loads(line)
            yield Finding(found["check"], found["state"], f"from a pod: {found['said']}", found["remedy"])


def job(name: str, options: Any) -> dict[str, Any]:
    """A Job that lets doctor run in a pod of the namespace, with a stage's Secrets and no rights."""
    labels = {"app.kubernetes.io/name": "yanmo", "app.kubernetes.io/component": "doctor"}
    mounts = [{"name": "tmp", "mountPath": "/scratch"}]
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    for secret, folder in options.secrets.items():
        mounts.append({"name": secret, "mountPath": folder})
        volumes.append({"name": secret, "secret": {"secretName": secret, "optional": True}})
    store = [f"--store={options.store}"] if options.store else []
    container = {
        "name": "doctor",
        "image": f"{options.image_prefix}{resources.IMAGES['cluster']}",
        "args": ["doctor", "--only=store", *store, "--json"],
        "volumeMounts": mounts,
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(_SECONDS),
            "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
