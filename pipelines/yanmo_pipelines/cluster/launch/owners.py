"""Whose a launched training is: the run that launched it, so that Kubernetes deletes one with the other.

That is the owner of the launcher's own pod, the Workflow of a run of KFP's or the Job of a rerun, and not the
pod: its eviction ends no training. Where two runs wait for one training both own it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi

_ENDED = ("Succeeded", "Failed", "Error")


def owners_here(api: KubernetesApi) -> tuple[Mapping[str, Any], ...]:
    """The ownerReferences of what this process launches; none where it runs in no pod.

    Raises:
        Forbidden: this pod may not read pods.
    """
    names = (os.environ.get(name, "") for name in ("KFP_POD_NAME", "HOSTNAME"))  # the latter: 63 characters
    pod = next(filter(None, names), "")
    if not pod or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return ()
    found = api.get(api.in_namespace("pods", pod), f"read the launcher's own pod {pod}")
    return tuple(
        {name: each[name] for name in ("apiVersion", "kind", "name", "uid")}
        for each in found["metadata"].get("ownerReferences") or []
        if each.get("controller")
    )


def has_ended(api: KubernetesApi, owner: Mapping[str, Any]) -> bool:
    """Whether a run or a Job has ended, so that nobody waits for what it launched.

    Raises:
        NotFound: it is gone; Kubernetes deletes what it owned by itself.
    """
    kind = f"{str(owner['kind']).lower()}s"
    version = str(owner["apiVersion"])
    group = f"apis/{version}" if "/" in version else f"api/{version}"
    asked = f"read {owner['kind']} {owner['name']}"
    status = api.get(api.in_namespace(kind, str(owner["name"]), group=group), asked).get("status") or {}
    if status.get("phase") in _ENDED:
        return True
    conditions = status.get("conditions") or []
    ends = ("Complete", "Failed") if owner["kind"] == "Job" else ()
    return any(one.get("type") in ends and one.get("status") == "True" for one in conditions)
