"""The pods of a training, one a node: who runs, who waits in which queue, and how they ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import EnvironmentFault, ExitCode
from yanmo.store.manifest import Reference
from yanmo.store.output import PausedOutput
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.pods import ended_state, one_line, pods_by, true_condition
from yanmo_pipelines.cluster.refusals import Forbidden, NotFound

_RANK = "batch.kubernetes.io/job-completion-index"
_GRAVEST = (ExitCode.BUG, ExitCode.DATA, ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.RETRY, ExitCode.DONE)
"""What no retry mends comes first. Of two such ends the one that is nobody's wrong option."""
_OUT_OF_MEMORY, _KILLED, _STOPPED = "OOMKilled", 137, 143
_KNOWN = {int(code) for code in ExitCode}
_KUEUE = "apis/kueue.x-k8s.io"


@dataclass(frozen=True)
class NodePod:
    """The newest pod of a node."""

    node: int
    pod: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def place(self) -> str:
        """The machine."""
        return str((self.pod.get("spec") or {}).get("nodeName") or "")

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded, Failed, as Kubernetes says."""
        if self.pod["metadata"].get("deletionTimestamp"):
            return "Ending"
        return str((self.pod.get("status") or {}).get("phase") or "Unknown")

    @property
    def message(self) -> str:
        """What it left as its last words: a reference, a pause, a card."""
        return str((ended_state(self.pod) or {}).get("message") or "").strip()

    def end(self) -> End | None:
        """Return how it ended; None while it has not."""
        found = ended_state(self.pod)
        by_cluster = _by_cluster(self.pod)
        if found is None:
            failed = (self.pod.get("status") or {}).get("phase") == "Failed"
            return End(self.node, ExitCode.RETRY, by_cluster) if failed else None
        code, reason = int(found.get("exitCode") or 0), str(found.get("reason") or "")
        if reason == _OUT_OF_MEMORY:
            return End(self.node, ExitCode.ENVIRONMENT, "out of memory (OOMKilled): its limit is too low")
        if code == ExitCode.DONE:
            return End(self.node, ExitCode.DONE, "")
        if code in _KNOWN:
            return End(self.node, ExitCode(code), _cause(self.message) or by_cluster)
        if code in (_KILLED, _STOPPED):
            return End(self.node, ExitCode.RETRY, by_cluster or f"killed (exit code {code})")
        said = _cause(self.message) or self.message[-300:] or reason
        return End(self.node, ExitCode.BUG, f"exit code {code}, which is none of `yanmo train`: {said}")


@dataclass(frozen=True)
class End:
    """How a node ended."""

    node: int
    code: ExitCode
    why: str

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"node {self.node} ended with {int(self.code)}{why}"


def pods_of(api: KubernetesApi, label: str, name: str) -> list[NodePod]:
    """The newest pod of each node that has one, node 0 first."""
    found = dict[int, Mapping[str, Any]]()
    for pod in pods_by(api, f"{label}={name}"):
        meta = pod["metadata"]
        index = (meta.get("labels") or {}).get(_RANK) or (meta.get("annotations") or {}).get(_RANK)
        if index is not None and str(index).isdecimal():
            found[int(index)] = pod
    return [NodePod(node, found[node]) for node in sorted(found)]


def gravest(pods: Iterable[NodePod]) -> End | None:
    """The end that says most of all: of equal ones the first node's with a reason."""
    ends = [end for pod in pods if (end := pod.end())]
    ends.sort(key=lambda end: (_GRAVEST.index(end.code), not end.why, end.node))
    return ends[0] if ends else None


def result_of(pods: Sequence[NodePod]) -> Reference | PausedOutput | None:
    """Return what node 0 made, by its last words; None where it left none.

    Raises:
        EnvironmentFault: it says something else: its image is of another version.
    """
    message = pods[0].message if pods and pods[0].node == 0 else ""
    if not message:
        return None
    paused = PausedOutput.from_json(message)
    if paused:
        return paused
    try:
        return Reference.from_dict(json.loads(message))
    except (ValueError, TypeError) as error:
        raise EnvironmentFault(
            f"node 0 ended well, and left {message[:100]!r} where its result was expected: its image is of "
            "another version of Yanmo; give nodes and launcher images of the same"
        ) from error


def warnings_of(api: KubernetesApi, name: str, since: str) -> list[str]:
    """Return what Kubernetes warns of what belongs to a training, one line each, the newest last.

    Args:
        since: leaves out what was said before, of an earlier one of the name; UTC, ISO 8601.
    """
    path = api.in_namespace("events")
    found = api.listed(path, f"list events of {name}", fieldSelector="type=Warning")
    own = [one for one in found if str((one.get("involvedObject") or {}).get("name", "")).startswith(name)]
    own = sorted((one for one in own if _said_at(one) >= since), key=_said_at)
    lines = (
        f"{one['involvedObject'].get('kind')} {one['involvedObject']['name']}: {one.get('reason')}: "
        f"{one_line(str(one.get('message', '')))}"
        for one in own
        if one.get("reason") != "FailedScheduling"  # the pod says it itself
    )
    return list(dict.fromkeys(lines))


def _said_at(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def waits_in_queue(api: KubernetesApi, meta: Mapping[str, Any]) -> str:
    """Why Kueue does not admit the object with this metadata; "" where it does, or where nobody queues it."""
    name = (meta.get("labels") or {}).get("kueue.x-k8s.io/queue-name", "")
    if not name:
        return ""
    try:
        version = api.get(f"/{_KUEUE}", "ask for Kueue's versions")["preferredVersion"]["version"]
        path, selector = api.in_namespace("workloads", group=f"{_KUEUE}/{version}"), "kueue.x-k8s.io/job-uid="
        found = api.listed(path, "list workloads", labelSelector=f"{selector}{meta.get('uid', '')}")
        workload = next(iter(found), None)
    except (Forbidden, NotFound) as error:
        return f"queue {name}; what for cannot be asked: {error}"
    if workload is None:
        return f"queue {name}: Kueue has not seen it yet"
    if (workload.get("spec") or {}).get("active") is False:
        return f"queue {name}: its workload {workload['metadata']['name']} was deactivated; {_why(workload)}"
    if true_condition(workload, "Admitted") is not None:
        return ""
    never = (
        "; it is more than the queue will ever have: ask for less (nodes, cpu, memory, gpus), or have "
        "its quota raised; until then it waits"
    )
    why = _why(workload)
    return f"queue {name}: {why}{never if 'maximum capacity' in why else ''}"


def _why(workload: Mapping[str, Any]) -> str:
    """Return what Kueue says last of its quota, or of the eviction before that."""
    conditions = (workload.get("status") or {}).get("conditions") or []
    for one in conditions:
        if one.get("type") == "QuotaReserved" and one.get("status") == "False" and one.get("message"):
            return one_line(str(one["message"]))
    evicted = true_condition(workload, "Evicted")
    return one_line(f"{evicted.get('reason')}: {evicted.get('message')}") if evicted else "not looked at yet"


def _by_cluster(pod: Mapping[str, Any]) -> str:
    """Return why the cluster ended the pod: evicted, preempted, its machine drained or gone."""
    said = true_condition(pod, "DisruptionTarget") or pod.get("status") or {}
    return one_line(f"{said.get('reason') or ''} {said.get('message') or ''}")


def _cause(message: str) -> str:
    """Return what a card gives as its reason, else its first line."""
    lines = [line for line in message.splitlines() if line.strip()]
    why = next((line.removeprefix("why: ") for line in lines if line.startswith("why: ")), "")
    return why or (lines[0][:300] if lines else "")
