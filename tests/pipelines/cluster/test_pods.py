"""Why pods are not even made, and how they ended: what Kubernetes and Argo say of it."""

from __future__ import annotations

from typing import Any

import pytest
from servers.replayed import answers, one

from yanmo_pipelines.cluster.pods import how_pod_of_run_ended, why_no_pod_of_job, why_no_pod_of_run

WORKFLOWS = "GET /apis/argoproj.io/v1alpha1/namespaces/kubeflow/workflows"
ASKED = f"{WORKFLOWS}?limit=500&labelSelector=pipeline%2Frunid%3Dr1"


def node(phase: str, name: str, message: str = "", kind: str = "Pod", at: str = "") -> dict[str, str]:
    started = f"2026-11-23T03:00:0{at}Z"
    return {"type": kind, "phase": phase, "name": name, "message": message, "startedAt": started}


def workflow(*nodes: dict[str, str]) -> dict[str, Any]:
    return {"items": [{"status": {"nodes": {str(number): each for number, each in enumerate(nodes)}}}]}


def test_a_job_whose_pods_a_quota_refuses_says_so(cluster: Any) -> None:
    api, _ = cluster(answers("rerun-quota-kubernetes"), "operators-full2")
    (why,) = why_no_pod_of_job(api, "operators-q")
    assert why.startswith(
        "Error creating: its pod is forbidden: exceeded quota: team, requested: limits.cpu=1"
    )


@pytest.mark.parametrize("status", [200, 403, 404])
def test_what_argo_says_of_a_pod_that_it_cannot_make(status: int, cluster: Any) -> None:
    body = workflow(
        node("Running", "w(0).root(0).train(0).executor", kind="Retry"),
        node("Pending", "w(0).root(0).train(0).executor(0)", 'pods "w-1" is forbidden: exceeded quota: team'),
        node("Succeeded", "w(0).root(0).curate(0)", "not found"),
    )
    api, _ = cluster([one(ASKED, status, body if status == 200 else {"message": "no"})])
    said = ["train: its pod is forbidden: exceeded quota: team"] if status == 200 else []
    assert why_no_pod_of_run(api, "r1") == said


def test_what_argo_says_of_a_pod_that_was_killed(cluster: Any) -> None:
    """As of a real run whose training was killed for lack of memory, and one that was tried again."""
    begin, killed = "language-model-jjww2(0).root(0).train(0).executor", "main: OOMKilled (exit code 137)"
    body = workflow(
        node("Failed", begin, killed, kind="Retry"),
        node("Failed", f"{begin}(1)", killed, at="7"),
        node("Error", f"{begin}(0)", "pod deleted", at="2"),
        node("Succeeded", "language-model-jjww2(0).root(0).curate(0)"),
    )
    api, _ = cluster([one(ASKED, 200, body)])
    assert how_pod_of_run_ended(api, "r1", "curate") == ""
    assert how_pod_of_run_ended(api, "r1", "train").startswith(
        "main: OOMKilled (exit code 137): it needed more memory than its limit; submit the same"
    )
