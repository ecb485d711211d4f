"""Why pods are not even made: what Kubernetes and Argo say of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.replayed import answers, kubeconfig, one, serving

from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.pods import how_pod_of_run_ended, why_no_pod_of_job, why_no_pod_of_run

WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/kubeflow/workflows"


def test_a_job_whose_pods_a_quota_refuses_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answers("rerun-quota-kubernetes")) as (address, _):
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, address))
        (why,) = why_no_pod_of_job(KubernetesApi.of(PlaceOptions(namespace="operators-full2")), "operators-q")
    assert why.startswith(
        "Error creating: its pod is forbidden: exceeded quota: team, requested: limits.cpu=1"
    )


@pytest.mark.parametrize("status", [200, 403, 404])
def test_what_argo_says_of_a_pod_that_it_cannot_make(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {
        "a": {"type": "Retry", "phase": "Running", "name": "w(0).root(0).train(0).executor"},
        "b": {
            "type": "Pod",
            "phase": "Pending",
            "name": "w(0).root(0).train(0).executor(0)",
            "message": 'pods "w-1" is forbidden: exceeded quota: team',
        },
        "c": {"type": "Pod", "phase": "Succeeded", "name": "w(0).root(0).curate(0)", "message": "not found"},
    }
    asked = f"GET {WORKFLOWS}?limit=500&labelSelector=pipeline%2Frunid%3Dr1"
    body = {"items": [{"status": {"nodes": nodes}}]} if status == 200 else {"message": "no"}
    with serving([one(asked, status, body)]) as (address, _):
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, address))
        found = why_no_pod_of_run(KubernetesApi.of(PlaceOptions()), "r1")
    assert found == (["train: its pod is forbidden: exceeded quota: team"] if status == 200 else [])


def test_what_argo_says_of_a_pod_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a real run whose training was killed for lack of memory, and one that was tried again."""
    begin, killed = "language-model-jjww2(0).root(0).train(0).executor", "main: OOMKilled (exit code 137)"
    pod, at = {"type": "Pod"}, "2026-11-23T03:00:0"
    nodes = {
        "retry": {"type": "Retry", "phase": "Failed", "name": begin, "message": killed},
        "b": {**pod, "phase": "Failed", "name": f"{begin}(1)", "startedAt": f"{at}7Z", "message": killed},
        "a": {
            **pod,
            "phase": "Error",
            "name": f"{begin}(0)",
            "startedAt": f"{at}2Z",
            "message": "pod deleted",
        },
        "other": {**pod, "phase": "Succeeded", "name": "language-model-jjww2(0).root(0).curate(0)"},
    }
    asked = f"GET {WORKFLOWS}?limit=500&labelSelector=pipeline%2Frunid%3Dr1"
    with serving([one(asked, 200, {"items": [{"status": {"nodes": nodes}}]})]) as (address, _):
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, address))
        api = KubernetesApi.of(PlaceOptions())
        said = how_pod_of_run_ended(api, "r1", "train")
        assert how_pod_of_run_ended(api, "r1", "curate") == ""
    assert said.startswith(
        "main: OOMKilled (exit code 137): it needed more memory than its limit; submit the same"
    )
