"""What a training waits for in a queue of Kueue's, in Kueue's own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.refusals import Forbidden, NotFound

_GROUP = "apis/kueue.x-k8s.io"
_NEVER = "maximum capacity"
"""Kueue says so of what is more than all that the queue has."""


class Queue:
    """Kueue's word on one object; asks for its version once."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api, self._version = api, ""

    def waits_for(self, meta: Mapping[str, Any]) -> str:
        """Why the object with this metadata is not admitted; "" where it is, or where nobody queues it."""
        name = (meta.get("labels") or {}).get("kueue.x-k8s.io/queue-name", "")
        if not name:
            return ""
        try:
            workload = self._workload(str(meta.get("uid", "")))
        except (Forbidden, NotFound) as error:
            return f"queue {name}; what for cannot be asked: {error}"
        if workload is None:
            return f"queue {name}: Kueue has not seen it yet"
        if (workload.get("spec") or {}).get("active") is False:
            return (
                f"queue {name}: its workload {workload['metadata']['name']} was deactivated; {_why(workload)}"
            )
        if _is(workload, "Admitted"):
            return ""
        why = _why(workload)
        never = (
            "; it is more than the queue will ever have: ask for less (nodes, cpu, memory, gpus), or have "
            "its quota raised; until then it waits"
        )
        return f"queue {name}: {why}{never if _NEVER in why else ''}"

    def _workload(self, uid: str) -> dict[str, Any] | None:
        if not self._version:
            group = self._api.get(f"/{_GROUP}", "ask for Kueue's versions")
            self._version = group["preferredVersion"]["version"]
        path = self._api.in_namespace("workloads", group=f"{_GROUP}/{self._version}")
        found = self._api.listed(path, "list workloads", labelSelector=f"kueue.x-k8s.io/job-uid={uid}")
        return next(iter(found), None)


def _conditions(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((workload.get("status") or {}).get("conditions") or [])


def _is(workload: Mapping[str, Any], kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in _conditions(workload))


def _why(workload: Mapping[str, Any]) -> str:
    """Return what Kueue says last of its quota, or of the eviction before that."""
    for one in _conditions(workload):
        if one.get("type") == "QuotaReserved" and one.get("status") == "False" and one.get("message"):
            return " ".join(str(one["message"]).split())
    for one in _conditions(workload):
        if one.get("type") == "Evicted" and one.get("status") == "True":
            return " ".join(f"{one.get('reason')}: {one.get('message')}".split())
    return "not looked at yet"
