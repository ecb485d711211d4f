"""A model behind KServe, and the champion behind llama.cpp's server, which follows its pointer."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from custom_resources import faults_of
from network_policies import Peer, allowed
from rendered import MANIFESTS, OWN, with_components

from yanmo.options.command_line import load
from yanmo.tools.export.options import ExportOptions
from yanmo_pipelines.cluster.roll import MODEL, RollOptions

SERVE = MANIFESTS / "components/serve"


def service() -> dict[str, Any]:
    """The InferenceService."""
    text = (SERVE / "inference-service.yaml").read_text(encoding="utf-8")
    (found,) = (each for each in yaml.safe_load_all(text) if each["kind"] == "InferenceService")
    return dict(found)


def test_the_service_is_one_to_kserve() -> None:
    assert list(faults_of(service())) == []


def test_a_field_that_kserve_does_not_know_would_be_found() -> None:
    wrong = copy.deepcopy(service())
    model = wrong["spec"]["predictor"]["model"]
    model["storageURI"] = model.pop("storageUri")
    del model["modelFormat"]["name"]
    said = "; ".join(faults_of(wrong))
    assert "storageURI" in said and "'name' is a required property" in said


def test_it_reads_the_folder_of_an_export_with_an_account_that_has_no_other_rights() -> None:
    text = (SERVE / "inference-service.yaml").read_text(encoding="utf-8")
    account, found = yaml.safe_load_all(text)
    predictor = found["spec"]["predictor"]
    assert predictor["serviceAccountName"] == account["metadata"]["name"]
    assert account["automountServiceAccountToken"] is predictor["automountServiceAccountToken"] is False
    assert predictor["model"]["modelFormat"] == {"name": "huggingface"}
    assert predictor["model"]["storageUri"].startswith("s3://")
    assert all(each["metadata"]["labels"][OWN] == "yanmo" for each in (account, found))
    resources = predictor["model"]["resources"]
    assert resources["requests"] == resources["limits"]


CHAMPION = "serve-champion"


@pytest.fixture(scope="module")
def champion(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """What stands beside the base, by kind and name."""
    found = with_components(tmp_path_factory.mktemp("manifests"), CHAMPION)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_every_object_of_it_is_known_field_by_field(champion: dict[Any, Any], version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for each in champion.values():
        validate.validate(each, version, strict=True)


def test_the_old_model_serves_until_the_new_one_is_ready(champion: dict[Any, Any]) -> None:
    spec = champion["Deployment", "yanmo-serve"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (server,), (export,) = spec["template"]["spec"]["containers"], spec["template"]["spec"]["initContainers"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/health"
    (model,) = export["env"]
    assert model["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{MODEL}']"
    first = spec["template"]["metadata"]["annotations"][MODEL]
    known = {"$(YANMO_MODEL)": first, "$(YANMO_CHANNEL)": "main"}
    verb, *flags = export["args"]
    for name, value in known.items():
        flags = [flag.replace(name, value) for flag in flags]
    options = load(ExportOptions, flags, "yanmo export")
    assert (verb, options.model, options.for_, options.overwrite) == ("export", "champion", "llama.cpp", True)
    assert server["args"][:2] == ["--model", f"{options.folder}/model.gguf"]
    selector = champion["Service", "yanmo-serve"]["spec"]["selector"]
    assert selector.items() <= spec["template"]["metadata"]["labels"].items()


def test_what_rolls_it_may_read_and_change_that_one_deployment(champion: dict[Any, Any]) -> None:
    (rule,) = champion["Role", "yanmo-serve-roll"]["rules"]
    assert rule == {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "resourceNames": ["yanmo-serve"],
        "verbs": ["get", "patch"],
    }
    pod = champion["CronJob", "serve-roll"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    verb, *flags = pod["containers"][0]["args"]
    options = load(RollOptions, [flag.replace("$(YANMO_CHANNEL)", "main") for flag in flags], "yanmo roll")
    assert (verb, options.deployment, options.channel) == ("roll", *rule["resourceNames"], "main")
    assert pod["serviceAccountName"] == "yanmo-serve-roll"


def test_both_pods_are_restricted_and_the_server_has_no_token(champion: dict[Any, Any]) -> None:
    serve = champion["Deployment", "yanmo-serve"]["spec"]["template"]["spec"]
    roll = champion["CronJob", "serve-roll"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert serve["automountServiceAccountToken"] is False
    for pod in (serve, roll):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] >= 10000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_only_pods_that_say_so_reach_the_server(champion: dict[Any, Any]) -> None:
    policies = [each for (kind, _), each in champion.items() if kind == "NetworkPolicy"]
    labels = champion["Deployment", "yanmo-serve"]["spec"]["template"]["metadata"]["labels"]
    server = Peer(labels=labels, namespace="kubeflow")
    friend = Peer(labels={"yanmo.dev/talks": "true"}, namespace="kubeflow")
    assert allowed(policies, friend, server, 8080)
    assert not allowed(policies, Peer(labels={"app": "any"}, namespace="kubeflow"), server, 8080)
    assert not allowed(policies, Peer(labels=friend.labels, namespace="elsewhere"), server, 8080)
