"""Whether a node could ever hold a pod, by what its whole size and its taints say, and if not, why not.

Other pods on the node are left out here: they end some day. So are volumes and topology: what is said to fit
may still wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from yanmo.common.words import plural
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi

_KEEPS_OFF = ("NoSchedule", "NoExecute")
_UNITS = {
    **{"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)},
    **{unit: Decimal(1000) ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (n + 1) for n, unit in enumerate("KMGTPE")},
}
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]i?|Ki)?\Z")


def quantity(text: str) -> Decimal:
    """The number that a quantity says: 0.5 of `500m`.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.match(text.strip())
    unit = (found[2] or "") if found else ""
    if found and unit in _UNITS:
        return Decimal(found[1]) * _UNITS[unit]
    if found and unit[:1] in "eE":
        return Decimal(found[1] + unit)
    raise ValueError(f"{text!r} is no quantity of Kubernetes; expected such as 500m, 2 or 3Gi")


def shown(resource: str, amount: Decimal) -> str:
    """As a person reads it: `2 CPU`, `3 GiB of memory`, `1 nvidia.com/gpu`."""
    if resource == "cpu":
        return f"{amount.normalize():f} CPU"
    if resource in ("memory", "ephemeral-storage"):
        gib = (amount / Decimal(1024) ** 3).quantize(Decimal("0.01")).normalize()
        return f"{gib:f} GiB of {'memory' if resource == 'memory' else 'disk'}"
    return f"{amount.normalize():f} {resource}"


@dataclass(frozen=True, kw_only=True)
class PodNeeds:
    """What a pod asks of a node."""

    task: str
    image: str
    requests: Mapping[str, Decimal]
    """Resource -> amount: cpu in cores, memory in bytes, GPUs."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


def nodes_of(kubernetes: KubernetesApi) -> list[dict[str, Any]]:
    """All nodes of the cluster."""
    return list(kubernetes.listed("/api/v1/nodes", "list nodes"))


def no_node_holds(needs: PodNeeds, nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return why no node could ever hold this pod; "" where one could."""
    reasons: dict[str, list[str]] = {}
    for node in nodes:
        why = _why_not(needs, node)
        if not why:
            return ""
        reasons.setdefault(why, []).append(str(node["metadata"]["name"]))
    if not nodes:
        return "the cluster has no node"
    return "; ".join(f"{_names(names)}: {why}" for why, names in reasons.items())


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{plural(len(names), 'node')} such as {names[0]}"


def _why_not(needs: PodNeeds, node: Mapping[str, Any]) -> str:
    labels = node["metadata"].get("labels") or {}
    wrong = {k: v for k, v in needs.node_selector.items() if labels.get(k) != v}
    if wrong:
        return "lacks label " + ", ".join(f"{k}={v}" for k, v in wrong.items())
    spec = node.get("spec") or {}
    for taint in spec.get("taints") or []:
        stays = taint.get("effect") in _KEEPS_OFF and not _is_passing(taint)
        if stays and not any(_tolerates(one, taint) for one in needs.tolerations):
            return f"has taint {taint['key']}={taint.get('value', '')}:{taint['effect']}"
    has = (node.get("status") or {}).get("allocatable") or {}
    short = [
        f"{shown(name, quantity(str(has.get(name, '0'))))} where {shown(name, amount)} are asked for"
        for name, amount in needs.requests.items()
        if amount > quantity(str(has.get(name, "0")))
    ]
    return ", ".join(short)


def _is_passing(taint: Mapping[str, Any]) -> bool:
    """Kubernetes sets these itself, and takes them off: a node that is away or drained comes back."""
    return str(taint.get("key", "")).startswith("node.kubernetes.io/")


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint["key"]
    wanted = (taint["key"], taint.get("value", ""))
    return (toleration.get("key"), toleration.get("value", "")) == wanted


def over_quota(needs: Iterable[PodNeeds], quotas: Iterable[Mapping[str, Any]]) -> list[str]:
    """Tasks that a ResourceQuota of the namespace can never admit, even while nothing else runs."""
    found = []
    quotas = list(quotas)
    for pod in needs:
        for quota in quotas:
            hard = (quota.get("spec") or {}).get("hard") or {}
            for name, amount in pod.requests.items():
                for key in _keys(name):
                    if key in hard and amount > quantity(str(hard[key])):
                        limit = shown(name, quantity(str(hard[key])))
                        what = f"{pod.task}: asks for {shown(name, amount)}"
                        found.append(f"{what}; quota {quota['metadata']['name']} allows {limit} in all")
    return list(dict.fromkeys(found))


def _keys(resource: str) -> tuple[str, ...]:
    """Return what a quota calls it; requests equal limits here."""
    plain = (resource,) if resource in ("cpu", "memory") else ()
    return (*plain, f"requests.{resource}", f"limits.{resource}")
