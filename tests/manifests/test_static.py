"""What can be proved without a cluster: that a server takes the manifests; that all they name is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from custom_resources import faults_of, is_custom
from rendered import MANIFESTS, OVERLAYS, OWN, check_restricted, named, objects, pods

from yanmo_pipelines.cluster.checks import NEEDED
from yanmo_pipelines.resources import IMAGES, SECRETS

validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
ALL = ["base", *OVERLAYS]
FROM_OUTSIDE = {
    "Secret": {*SECRETS, "yanmo-s3-keys", "yanmo-registry"},
    "ClusterRole": {"kubeflow-pipelines-edit"},
    "ConfigMap": set[str](),
    "ServiceAccount": set[str](),
    "PriorityClass": set[str](),
    "Role": set[str](),
}
"""What manifests name and do not hold: manifests/README.md says where each comes from."""
FROM_REGISTRIES = {"chrislusf/seaweedfs", "registry.example/mirror/seaweedfs"}


@pytest.mark.parametrize("version", ["1.30", "1.34"])
@pytest.mark.parametrize("overlay", ALL)
def test_every_object_is_one_that_kubernetes_knows_field_by_field(overlay: str, version: str) -> None:
    for each in objects(overlay):
        if is_custom(each):
            assert not list(faults_of(each))
        else:
            validate.validate(each, version, strict=True)


def _references(overlay: str) -> set[tuple[str, str]]:
    found = set[tuple[str, str]]()
    for pod in pods(overlay):
        if "serviceAccountName" in pod.spec:
            found.add(("ServiceAccount", pod.spec["serviceAccountName"]))
        if "priorityClassName" in pod.spec:
            found.add(("PriorityClass", pod.spec["priorityClassName"]))
        for source in pod.container.get("envFrom", []):
            found |= {("ConfigMap", s["name"]) for k, s in source.items() if k == "configMapRef"}
            assert "secretRef" not in source, "credentials are files, which a rotated Secret reaches"
        for variable in pod.container.get("env", []):
            assert "secretKeyRef" not in variable.get("valueFrom", {}), variable
        for volume in pod.spec.get("volumes", []):
            if "secret" in volume:
                found.add(("Secret", volume["secret"]["secretName"]))
            if "configMap" in volume:
                found.add(("ConfigMap", volume["configMap"]["name"]))
        claims = {"data"} if pod.owner == "StatefulSet/yanmo-s3" else set()
        there = {volume["name"] for volume in pod.spec.get("volumes", [])} | claims
        assert {mount["name"] for mount in pod.container["volumeMounts"]} == there, pod.owner
    for account in named(overlay, "ServiceAccount").values():
        found |= {("Secret", secret["name"]) for secret in account.get("imagePullSecrets", [])}
    for binding in named(overlay, "RoleBinding").values():
        found.add((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        found |= {(subject["kind"], subject["name"]) for subject in binding["subjects"]}
    for binding in named(overlay, "ClusterRoleBinding").values():
        assert named(overlay, "ClusterRole").keys() == {binding["roleRef"]["name"]}
        assert [s["namespace"] for s in binding["subjects"]] == [
            named(overlay, "ServiceAccount")["yanmo-operator"]["metadata"]["namespace"]
        ]
    for quota in named(overlay, "ResourceQuota").values():
        for expression in quota["spec"]["scopeSelector"]["matchExpressions"]:
            found |= {("PriorityClass", name) for name in expression["values"]}
    return found


@pytest.mark.parametrize("overlay", ALL)
def test_all_that_is_named_is_there_or_documented_as_given_from_outside(overlay: str) -> None:
    readme = (MANIFESTS / "README.md").read_text(encoding="utf-8")
    for kind, name in sorted(_references(overlay)):
        assert name in FROM_OUTSIDE[kind] | named(overlay, kind).keys(), (kind, name)
        assert name not in FROM_OUTSIDE[kind] or f"`{name}`" in readme, f"{name} is not in the README"


@pytest.mark.parametrize("overlay", ALL)
def test_images_are_those_of_the_one_table_under_any_registry_and_never_the_latest(overlay: str) -> None:
    ours = set(IMAGES.values())
    for pod in pods(overlay):
        image = pod.container["image"]
        name, _, tag = image.rpartition(":")
        if OWN in pod.labels:
            assert image.rpartition("/")[2] in ours, pod.owner
            stage_image = "train" if pod.stage in ("train", "evaluate", "promote") else "data"
            assert image.rpartition("/")[2] == IMAGES[stage_image], pod.owner
        else:
            assert name in FROM_REGISTRIES and re.fullmatch(r"\d[\d.]*", tag), image


@pytest.mark.parametrize("overlay", ALL)
def test_every_pod_meets_the_restricted_standard_with_a_read_only_root(overlay: str) -> None:
    assert pods(overlay)
    for pod in pods(overlay):
        check_restricted(pod.spec)
        assert pod.spec["automountServiceAccountToken"] is False
        kinds = {kind for volume in pod.spec.get("volumes", []) for kind in volume if kind != "name"}
        assert kinds <= {"emptyDir", "secret"}, "no hostPath"
        assert not pod.spec.get("hostNetwork") and not pod.spec.get("hostPID")
        assert all("sizeLimit" in v["emptyDir"] for v in pod.spec["volumes"] if "emptyDir" in v)


@pytest.mark.parametrize("overlay", ALL)
def test_requests_are_limits(overlay: str) -> None:
    for pod in pods(overlay):
        given = pod.container["resources"]
        assert given["requests"] == given["limits"] and {"cpu", "memory"} <= given["limits"].keys()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_puts_all_that_is_namespaced_into_one_namespace(overlay: str) -> None:
    of_the_cluster = ("PriorityClass", "ClusterRole", "ClusterRoleBinding")
    spaces = {o["metadata"].get("namespace") for o in objects(overlay) if o["kind"] not in of_the_cluster}
    assert len(spaces) == 1 and None not in spaces


def test_the_base_is_of_no_environment() -> None:
    for each in objects("base"):
        assert "namespace" not in each["metadata"]
    text = json.dumps(objects("base"))
    assert "YANMO_STORE" not in text and "priorityClassName" not in text and "nvidia.com" not in text


def test_no_service_account_may_more_than_it_needs() -> None:
    roles = named("base", "Role")
    assert roles.keys() == {"yanmo-operator"}
    (node_role,) = named("small", "ClusterRole").values()
    assert node_role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]
    (binding,) = named("base", "RoleBinding").values()
    assert [subject["name"] for subject in binding["subjects"]] == ["yanmo-operator"]
    rules = roles["yanmo-operator"]["rules"]
    for verb, resource, group, command in NEEDED:
        assert any(
            verb in rule["verbs"] and resource in rule["resources"] and group in rule["apiGroups"]
            for rule in rules
        ), f"{command} may not {verb} {resource}"
    for rule in rules:
        for part in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[part]
        assert not {"secrets", "pods/exec"} & {*rule["resources"]}
        assert set(rule["verbs"]) <= {"get", "list", "watch", "create"}
        assert "create" not in rule["verbs"] or rule["resources"] == ["jobs"]


OF_CHOICE = {
    *("prometheus", "dashboards", "pushgateway", "launch", "queue"),
    *("serve", "ray"),
}
"""Components that no overlay has: they need another project (test_rules.py, test_dashboards.py,
test_pushgateway.py, test_launch.py, test_serve.py and test_ray.py look at them)."""
NOT_APPLIED = {f"components/prometheus/{name}.yaml" for name in ("rules", "scrape", "alertmanager")}
"""Files for a Prometheus without its operator, and an example for Alertmanager."""


@pytest.mark.parametrize(
    "path",
    sorted(p for p in MANIFESTS.rglob("*.yaml") if str(p.relative_to(MANIFESTS)) not in NOT_APPLIED),
    ids=lambda p: str(p.relative_to(MANIFESTS)),
)
def test_every_file_is_part_of_an_overlay(path: Path) -> None:
    """A file that no kustomization names would rot unseen."""
    here = path.parent
    text = (here / "kustomization.yaml").read_text(encoding="utf-8")
    known = yaml.safe_load(text)
    if path.name != "kustomization.yaml":
        files = [*known.get("resources", []), *(p["path"] for p in known.get("patches", []) if "path" in p)]
        assert path.name in files
    elif here.parent.name == "components" and here.name not in OF_CHOICE:
        users = [o for o in OVERLAYS if f"components/{here.name}" in _kustomization(o)]
        assert users, f"no overlay uses {here.name}"


def _kustomization(overlay: str) -> str:
    return (MANIFESTS / "overlays" / overlay / "kustomization.yaml").read_text(encoding="utf-8")
