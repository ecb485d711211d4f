"""Whether a node could ever hold a stage's pod."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo_pipelines.cluster.fitting import PodNeeds, no_node_holds, over_quota, quantity, shown

GIB = Decimal(1024) ** 3


def node(name: str = "n1", taints: Any = (), labels: Any = None, **has: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "2", "memory": "8Gi", **has}},
    }


def pod(**more: Any) -> PodNeeds:
    return PodNeeds(**{"task": "train", "image": "x", "requests": {"cpu": Decimal(1), "memory": GIB}} | more)


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
CASES = [
    (pod(), [node()], ""),
    (pod(), [], "the cluster has no node"),
    (pod(requests={"cpu": Decimal(3)}), [node()], "n1: 2 CPU where 3 CPU are asked for"),
    (pod(requests={"cpu": Decimal(3)}), [node(), node("big", cpu="4")], ""),
    (pod(requests={"memory": 9 * GIB}), [node()], "n1: 8 GiB of memory where 9 GiB of memory are asked for"),
    (pod(requests={"nvidia.com/gpu": Decimal(1)}), [node()], "n1: 0 nvidia.com/gpu where 1 nvidia.com/gpu"),
    (pod(requests={"nvidia.com/gpu": Decimal(1)}), [node(**{"nvidia.com/gpu": "8"})], ""),
    (pod(node_selector={"disk": "fast"}), [node(), node("n2")], "2 nodes such as n1: lacks label disk=fast"),
    (pod(node_selector={"disk": "fast"}), [node(labels={"disk": "fast"})], ""),
    (pod(), [node(taints=[TAINT])], "n1: has taint nvidia.com/gpu=present:NoSchedule"),
    (pod(tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},)), [node(taints=[TAINT])], ""),
    (pod(tolerations=({"operator": "Exists"},)), [node(taints=[TAINT])], ""),
    (pod(tolerations=({"key": "nvidia.com/gpu", "value": "present"},)), [node(taints=[TAINT])], ""),
    (pod(tolerations=({"key": "nvidia.com/gpu", "value": "no"},)), [node(taints=[TAINT])], "n1: has taint"),
    (
        pod(tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"},)),
        [node(taints=[TAINT])],
        "n1: has taint",
    ),
    (pod(), [node(taints=[{**TAINT, "effect": "PreferNoSchedule"}])], ""),
    (pod(), [node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])], ""),
]


@pytest.mark.parametrize(("needs", "nodes", "why"), CASES, ids=range(len(CASES)))
def test_why_no_node_holds_a_pod(needs: PodNeeds, nodes: list[Any], why: str) -> None:
    found = no_node_holds(needs, nodes)
    assert found == "" if not why else found.startswith(why)


def test_a_quota_that_can_never_admit_a_task_is_found() -> None:
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "500m", "limits.memory": "4Gi"}}}
    assert over_quota([pod(), pod(requests={"memory": 4 * GIB})], [quota]) == [
        "train: asks for 1 CPU; quota team allows 0.5 CPU in all"
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", "0.5"), ("2", "2"), ("1.5Gi", "1610612736"), ("1e3", "1000"), ("1E", "1e18"), ("3k", "3000")],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: str, number: str) -> None:
    assert quantity(text) == Decimal(number)


@given(st.text(max_size=8))
def test_what_is_no_quantity_is_refused_and_not_guessed(text: str) -> None:
    try:
        assert quantity(text).is_finite()
    except ValueError as error:
        assert "expected such as" in str(error)


def test_amounts_are_shown_as_a_person_reads_them() -> None:
    assert shown("cpu", Decimal("0.5")) == "0.5 CPU"
    assert shown("cpu", Decimal(100)) == "100 CPU"
    assert shown("memory", 3 * GIB) == "3 GiB of memory"
    assert shown("nvidia.com/gpu", Decimal(10)) == "10 nvidia.com/gpu"
