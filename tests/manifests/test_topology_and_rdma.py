"""Nodes near each other, networks faster than TCP: components of choice beside `launch` and `queue`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from custom_resources import TRAINERS, faults_by, faults_of, is_custom, of_trainer
from rendered import with_components
from test_launch import TRAINING

from yanmo_pipelines.cluster.launch.made_by import IndexedJobs, TrainJobs, resources_of

ALL = ("launch", "queue", "topology", "rdma", "rdma-as-root")
Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """The base with all of them."""
    return with_components(tmp_path_factory.mktemp("manifests"), *ALL)


@pytest.fixture(scope="module")
def unprivileged(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    return with_components(tmp_path_factory.mktemp("manifests"), *ALL[:-1])


def one(objects: Objects, kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return found


def node_pod(objects: Objects) -> dict[str, Any]:
    (job,) = one(objects, "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    return dict(job["template"]["spec"]["template"])


def test_every_object_is_known_field_by_field(whole: Objects) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for each in whole:
        if each["kind"] == "TrainingRuntime":
            for version in TRAINERS:
                assert not list(faults_by(of_trainer(version)["TrainingRuntime"], each))
        elif is_custom(each):
            assert not list(faults_of(each)), each["kind"]
        else:
            for version in ("1.30", "1.34"):
                validate.validate(each, version, strict=True)


def test_a_topology_with_a_field_that_kueue_drops_is_found(whole: Objects) -> None:
    topology = json.loads(json.dumps(one(whole, "Topology")))
    topology["spec"]["levels"][0]["label"] = "x"
    assert any("label" in fault for fault in faults_of(topology))


def test_the_queues_flavor_has_the_topology_and_the_nodes_ask_for_a_level_of_it(whole: Objects) -> None:
    topology, flavor = one(whole, "Topology"), one(whole, "ResourceFlavor")
    assert flavor["spec"]["topologyName"] == topology["metadata"]["name"]
    assert flavor["spec"]["nodeLabels"], "Kueue's own rule: no topology without a label of its nodes"
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert len(set(levels)) == len(levels) and levels.index("kubernetes.io/hostname") == len(levels) - 1
    (used,) = one(whole, "ClusterQueue")["spec"]["resourceGroups"][0]["flavors"]
    assert used["name"] == flavor["metadata"]["name"]
    train = one(whole, "CronJob", "stage-train")["spec"]["jobTemplate"]["spec"]["template"]
    for pod in (node_pod(whole), train):
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] in levels
        assert pod["metadata"]["labels"]["yanmo.dev/stage"] == "train", "labels stay"
    (job, _) = IndexedJobs(one(whole, "CronJob", "stage-train"), "/p").objects(TRAINING)
    assert job["spec"]["template"]["metadata"]["annotations"] == train["metadata"]["annotations"]


@pytest.mark.parametrize("version", TRAINERS)
def test_a_launch_keeps_the_devices_that_the_runtime_has(whole: Objects, version: str) -> None:
    """Trainer puts a TrainJob's resources in the place of all that the runtime says of them."""
    of_runtime = resources_of(one(whole, "TrainingRuntime"))
    assert of_runtime["limits"]["rdma/hca"] == of_runtime["requests"]["rdma/hca"] == "1"
    (made,) = TrainJobs("/p", resources=of_runtime).objects(TRAINING)
    given = made["spec"]["trainer"]["resourcesPerNode"]
    assert given["requests"] == given["limits"] == {**TRAINING.resources, "rdma/hca": "1"}
    assert not list(faults_by(of_trainer(version)["TrainJob"], made))


def test_a_launch_alone_says_cpu_memory_and_gpus(whole: Objects) -> None:
    of_runtime = {"limits": {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "rdma/hca": 2}}
    training = TRAINING.__class__(**{**vars(TRAINING), "resources": {"cpu": "1", "memory": "3Gi"}})
    (made,) = TrainJobs("/p", resources=of_runtime).objects(training)
    assert made["spec"]["trainer"]["resourcesPerNode"] == {
        "requests": {"cpu": "1", "memory": "3Gi"},
        "limits": {"cpu": "1", "memory": "3Gi", "rdma/hca": "2"},
    }


def test_the_queue_covers_what_the_nodes_ask_for(whole: Objects) -> None:
    (group,) = one(whole, "ClusterQueue")["spec"]["resourceGroups"]
    assert set(resources_of(one(whole, "TrainingRuntime"))["limits"]) <= set(group["coveredResources"])
    for flavor in group["flavors"]:
        assert [each["name"] for each in flavor["resources"]] == group["coveredResources"]


def test_nccl_uses_the_devices_or_fails_and_shared_memory_is_large(unprivileged: Objects) -> None:
    pod = node_pod(unprivileged)["spec"]
    (container,) = pod["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["NCCL_NET"] == "IB" and env["NCCL_IB_HCA"] and env["NCCL_SOCKET_IFNAME"]
    assert len(env) == len(container["env"])
    (memory,) = [each["emptyDir"] for each in pod["volumes"] if each["name"] == "shared-memory"]
    assert memory == {"medium": "Memory", "sizeLimit": "16Gi"}


def test_only_the_component_that_says_so_runs_as_root_and_with_one_capability(
    whole: Objects, unprivileged: Objects
) -> None:
    as_root, plain = node_pod(whole)["spec"], node_pod(unprivileged)["spec"]
    assert plain["securityContext"]["runAsUser"] >= 10000 and plain["securityContext"]["runAsNonRoot"]
    capabilities = [spec["containers"][0]["securityContext"]["capabilities"] for spec in (plain, as_root)]
    assert capabilities == [{"drop": ["ALL"]}, {"drop": ["ALL"], "add": ["IPC_LOCK"]}]
    # Of another user the capability would do nothing: Kubernetes sets no ambient ones.
    assert as_root["securityContext"]["runAsUser"] == 0 and not as_root["securityContext"]["runAsNonRoot"]
    assert as_root["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


@pytest.mark.parametrize("component", ["topology", "rdma"])
def test_each_does_without_the_queue(component: str, tmp_path: Path) -> None:
    found = with_components(tmp_path, "launch", component)
    assert one(found, "TrainingRuntime") and not [each for each in found if each["kind"] == "ClusterQueue"]
