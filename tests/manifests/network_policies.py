"""What NetworkPolicies let through: their rules, read as a network plugin reads them.

Kubernetes' documentation, "Network Policies": a pod that no policy selects for a direction may do everything
in it; one that some select may do what a rule of one of them allows.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One end of a connection: a pod, or an address that is none."""

    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    """Empty for what is no pod."""
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""

    @property
    def labels_of_namespace(self) -> dict[str, str]:
        return {"kubernetes.io/metadata.name": self.namespace, **self.namespace_labels}


def allowed(
    policies: Iterable[Mapping[str, Any]], source: Peer, target: Peer, port: int, protocol: str = "TCP"
) -> bool:
    """Whether the policies let `source` reach `port` of `target`: out of the one and into the other."""
    found = list(policies)
    return _may(found, "Egress", source, target, port, protocol) and _may(
        found, "Ingress", target, source, port, protocol
    )


def _may(
    policies: list[Mapping[str, Any]], way: str, pod: Peer, other: Peer, port: int, protocol: str
) -> bool:
    if not pod.namespace:
        return True  # policies are about pods
    of_pod = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == pod.namespace
        and way in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], pod.labels)
    ]
    rules = [rule for policy in of_pod for rule in policy["spec"].get(way.lower(), [])]
    side = "to" if way == "Egress" else "from"
    return not of_pod or any(
        _is_peer(rule.get(side), other, pod.namespace) and _is_port(rule.get("ports"), port, protocol)
        for rule in rules
    )


def _is_peer(peers: list[Mapping[str, Any]] | None, other: Peer, own_namespace: str) -> bool:
    return not peers or any(_matches(peer, other, own_namespace) for peer in peers)


def _matches(peer: Mapping[str, Any], other: Peer, own_namespace: str) -> bool:
    if block := peer.get("ipBlock"):
        if other.namespace or not other.address:
            return False  # whether an address block holds a pod's address is left to each network plugin
        address = ipaddress.ip_address(other.address)
        inside = address in ipaddress.ip_network(block["cidr"])
        return inside and not any(address in ipaddress.ip_network(each) for each in block.get("except", []))
    if not other.namespace:
        return False
    spaces = peer.get("namespaceSelector")
    if spaces is None and other.namespace != own_namespace:
        return False
    return (spaces is None or selects(spaces, other.labels_of_namespace)) and selects(
        peer.get("podSelector", {}), other.labels
    )


def _is_port(ports: list[Mapping[str, Any]] | None, port: int, protocol: str) -> bool:
    return not ports or any(
        each.get("protocol", "TCP") == protocol
        and ("port" not in each or each["port"] <= port <= each.get("endPort", each["port"]))
        for each in ports
    )


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects what has these labels; an empty one selects everything."""
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(each, labels) for each in selector.get("matchExpressions", [])
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values", [])
    return {
        "In": labels.get(key) in values,
        "NotIn": key not in labels or labels[key] not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[operator]
