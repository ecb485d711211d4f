"""Whether a node could ever hold a task's pod."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.errors import UsageError
from yanmo_pipelines.cluster.fitting import no_node_holds, over_quota
from yanmo_pipelines.cluster.needs import PodNeeds, pods_of
from yanmo_pipelines.cluster.quantities import quantity, shown
from yanmo_pipelines.compile import COMPILED, compile_pipeline, load_pipeline
from yanmo_pipelines.resources import COLUMNS, row_of

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


@pytest.mark.parametrize("column", COLUMNS)
def test_what_pods_ask_for_is_what_the_table_says(column: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    compile_pipeline(load_pipeline("language_model", column), path)
    for found in pods_of(list(yaml.safe_load_all(path.read_text(encoding="utf-8"))), {}):
        row = row_of(column, "evaluate" if found.task.startswith("evaluate") else found.task)
        asked = {"cpu": quantity(row.cpu), "memory": quantity(row.memory)}
        if row.gpus not in ("", "0"):
            asked["nvidia.com/gpu"] = quantity(row.gpus)
        assert found.requests == asked
        assert found.image.startswith("yanmo-")


def test_values_of_the_form_change_what_training_asks_for() -> None:
    documents = list(yaml.safe_load_all((COMPILED / "language_model.yaml").read_text(encoding="utf-8")))
    values = {"training_pod_cpu": "500m", "training_pod_gpus": "2", "training_pod_memory": "5Gi"}
    of_task = {found.task: found.requests for found in pods_of(documents, values)}
    assert of_task["train"] == {"cpu": Decimal("0.5"), "memory": 5 * GIB, "nvidia.com/gpu": Decimal(2)}
    assert of_task["evaluate-champion"] == of_task["train"]
    assert of_task["curate"]["cpu"] == 1
    line = "train.layers=2 resolve.training_pod_nodes=disk=fast "
    line += "resolve.training_pod_tolerations=pool=a:NoExecute"
    trained = next(found for found in pods_of(documents, {"options": line}) if found.task == "train")
    assert trained.node_selector == {"disk": "fast"}
    assert trained.tolerations == ({"key": "pool", "operator": "Equal", "value": "a", "effect": "NoExecute"},)
    assert trained.requests == {"cpu": 1, "memory": 3 * GIB}
    with pytest.raises(UsageError, match="training_pod_memory 5 GB: expected an amount above 0"):
        pods_of(documents, {"training_pod_memory": "5 GB"})


def test_nodes_and_taints_that_the_form_names_reach_the_pods_that_train() -> None:
    documents = list(yaml.safe_load_all((COMPILED / "language_model.yaml").read_text(encoding="utf-8")))
    line = "resolve.training_pod_nodes=pool=gpu resolve.training_pod_tolerations=nvidia.com/gpu:NoSchedule"
    of_task = {found.task: found for found in pods_of(documents, {"options": line})}
    for task in ("train", "evaluate", "evaluate-champion"):
        assert of_task[task].node_selector == {"pool": "gpu"}
        assert no_node_holds(of_task[task], [node(cpu="9")]) == "n1: lacks label pool=gpu"
        assert no_node_holds(of_task[task], [node(labels={"pool": "gpu"}, taints=[TAINT])]) == ""
    assert of_task["curate"].node_selector == {}


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
