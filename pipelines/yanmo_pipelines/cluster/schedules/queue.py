"""A LocalQueue of Kueue's, held by day and released by night: its stop policy.

`HoldAndDrain` suspends the Jobs and TrainJobs that were admitted: their pods get SIGTERM and their grace to
save. With `None` they are admitted again and go on. KFP's own pods are in no queue: they keep to `--night`.
"""

from __future__ import annotations

from yanmo.common.errors import EnvironmentFault
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.refusals import NotFound

_GROUP = "apis/kueue.x-k8s.io"
_HELD, _OPEN = "HoldAndDrain", "None"


def hold(options: PlaceOptions, name: str, *, held: bool) -> str:
    """Hold the queue or release it; says what was done.

    Raises:
        EnvironmentFault: there is no such queue.
    """
    api, policy = KubernetesApi.of(options), _HELD if held else _OPEN
    try:
        served = api.get(f"/{_GROUP}", "ask for Kueue's versions")["preferredVersion"]["version"]
        path = api.in_namespace("localqueues", name, group=f"{_GROUP}/{served}")
        queue = api.get(path, f"read LocalQueue {name}")
        if (queue.get("spec") or {}).get("stopPolicy", _OPEN) == policy:
            return f"unchanged: LocalQueue {name} has stop policy {policy}"
        api.merge(path, f"set the stop policy of LocalQueue {name}", {"spec": {"stopPolicy": policy}})
    except NotFound:
        raise EnvironmentFault(
            f"there is no LocalQueue {name} in namespace {api.namespace}, or no Kueue: apply the component "
            "night-window of manifests/, or give --queue or --namespace"
        ) from None
    return f"changed: LocalQueue {name} has stop policy {policy}"
