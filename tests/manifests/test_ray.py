"""The Ray cluster of `--engine ray`: what can be proved without KubeRay's operator."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendered import MANIFESTS, check_restricted, with_components

from yanmo.options.fields import names_of
from yanmo_pipelines.resources import RAY_FOLDER, RAY_SECRET, RAY_VARIABLES, SECRETS
from yanmo_pipelines.stages import STAGES

validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
FOLDER = MANIFESTS / "components/ray"
(CLUSTER,) = yaml.safe_load_all((FOLDER / "cluster.yaml").read_text(encoding="utf-8"))
SPEC = CLUSTER["spec"]
PODS: dict[str, dict[str, Any]] = {
    "head": SPEC["headGroupSpec"]["template"],
    **{group["groupName"]: group["template"] for group in SPEC["workerGroupSpecs"]},
}


@pytest.mark.parametrize("name", PODS)
def test_its_pods_are_restricted_and_known_to_kubernetes_field_by_field(name: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", **PODS[name]}
    pod["metadata"] = {"name": name, **pod["metadata"]}
    validate.validate(pod, "1.34", strict=True)
    spec = pod["spec"]
    check_restricted(spec)
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["image"].startswith("yanmo-data-ray:")


def test_an_overlay_takes_it_into_its_namespace(tmp_path: Path) -> None:
    made = {(each["kind"], each["metadata"]["name"]): each for each in with_components(tmp_path, "ray")}
    assert made["RayCluster", "yanmo"]["metadata"]["namespace"] == "kubeflow"
    assert made["RayCluster", "yanmo"]["spec"] == SPEC
    assert {("NetworkPolicy", "yanmo-ray"), ("NetworkPolicy", "yanmo-ray-drivers")} <= made.keys()
    settings = made["ConfigMap", "yanmo-settings"]["data"]
    assert settings.items() >= RAY_VARIABLES.items() and "YANMO_CHANNEL" in settings
    for stage in STAGES["data_only"][1:]:
        pod = made["CronJob", f"stage-{stage.name}"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == PODS["head"]["spec"]["containers"][0]["image"]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        secrets = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        has_engine = "engine" in names_of(stage.config)
        assert (RAY_FOLDER in mounts) == (RAY_SECRET in secrets) == has_engine, stage.name


def test_its_pods_mount_what_says_where_the_store_is_as_stages_do() -> None:
    for pod in PODS.values():
        volumes = {v["name"]: v["secret"] for v in pod["spec"]["volumes"] if "secret" in v}
        (container,) = pod["spec"]["containers"]
        found = {
            volumes[m["name"]]["secretName"]: m["mountPath"]
            for m in container["volumeMounts"]
            if m["name"] in volumes
        }
        assert found == SECRETS and all(secret["optional"] for secret in volumes.values())


def test_a_token_is_asked_for_and_the_head_does_no_work_and_shows_nothing() -> None:
    assert SPEC["authOptions"] == {"mode": "token", "secretName": RAY_SECRET}
    start = SPEC["headGroupSpec"]["rayStartParams"]
    assert start["num-cpus"] == "0" and start["include-dashboard"] == "false"
    project = tomllib.loads((MANIFESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"ray[client]=={SPEC['rayVersion']}" in project["optional-dependencies"]["ray"]


def test_strangers_reach_no_port_of_it_and_stages_the_clients_alone() -> None:
    policies = list(yaml.safe_load_all((FOLDER / "network-policy.yaml").read_text(encoding="utf-8")))
    for each in policies:
        validate.validate(each, "1.34", strict=True)
    own = PODS["head"]["metadata"]["labels"]
    for each in policies[:1]:
        chosen = each["spec"]["podSelector"]["matchLabels"]
        assert (
            chosen.items() <= own.items() and chosen.items() <= PODS["workers"]["metadata"]["labels"].items()
        )
        nodes, drivers = each["spec"]["ingress"]
        assert [peer["podSelector"]["matchLabels"] for peer in nodes["from"]] == [chosen]
        assert drivers["ports"] == [{"port": 10001, "protocol": "TCP"}]
    ports = {port["containerPort"] for port in PODS["head"]["spec"]["containers"][0]["ports"]}
    assert 10001 in ports and not ports & {8265, 52365}, "the dashboard's"


def test_a_cluster_that_grows_and_shrinks_is_one_that_kueue_takes() -> None:
    """Its webhook (of 0.18.2) refuses one with an autoscaler and a queue that is not called elastic, and one
    with more groups than a Workload has room for."""
    assert "kueue.x-k8s.io/queue-name" in CLUSTER["metadata"]["labels"] and SPEC["enableInTreeAutoscaling"]
    assert CLUSTER["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] == "true"
    assert len(SPEC["workerGroupSpecs"]) <= 7
