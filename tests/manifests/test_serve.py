"""The champion behind llama.cpp's server."""

from __future__ import annotations

from typing import Any

import pytest
from network_policies import Peer, allowed
from rendered import check_restricted, with_components

from yanmo.options.command_line import load
from yanmo.tools.export.command import ExportOptions


@pytest.fixture(scope="module")
def champion(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """What stands beside the base, by kind and name."""
    found = with_components(tmp_path_factory.mktemp("manifests"), "serve")
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
    verb, *flags = (flag.replace("$(YANMO_CHANNEL)", "main") for flag in export["args"])
    options = load(ExportOptions, flags, "yanmo export")
    assert (verb, options.model, options.for_, options.overwrite) == ("export", "champion", "llama.cpp", True)
    assert server["args"][:2] == ["--model", f"{options.folder}/model.gguf"]
    selector = champion["Service", "yanmo-serve"]["spec"]["selector"]
    assert selector.items() <= spec["template"]["metadata"]["labels"].items()


def test_the_pod_is_restricted_and_has_no_token(champion: dict[Any, Any]) -> None:
    pod = champion["Deployment", "yanmo-serve"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    check_restricted(pod)


def test_only_pods_that_say_so_reach_the_server(champion: dict[Any, Any]) -> None:
    policies = [each for (kind, _), each in champion.items() if kind == "NetworkPolicy"]
    labels = champion["Deployment", "yanmo-serve"]["spec"]["template"]["metadata"]["labels"]
    server = Peer(labels=labels, namespace="kubeflow")
    friend = Peer(labels={"yanmo.dev/talks": "true"}, namespace="kubeflow")
    assert allowed(policies, friend, server, 8080)
    assert not allowed(policies, Peer(labels={"app": "any"}, namespace="kubeflow"), server, 8080)
    assert not allowed(policies, Peer(labels=friend.labels, namespace="elsewhere"), server, 8080)
