"""The pod of `yanmo status --serve`: its command line, its rights, its settings."""

from __future__ import annotations

from typing import Any

import pytest
from rendered import OVERLAYS, named, pods

from yanmo.options.command_line import load
from yanmo_pipelines.cluster.status.options import StatusOptions
from yanmo_pipelines.resources import METRICS_PORT, SECRETS


def deployment(overlay: str) -> dict[str, Any]:
    return named(overlay, "Deployment")["yanmo-status"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_it_reads_its_command_line_and_the_settings(overlay: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (pod,) = [pod for pod in pods(overlay) if pod.owner == "Deployment/yanmo-status"]
    for name, value in named(overlay, "ConfigMap")["yanmo-settings"]["data"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_CRON", "0 21 * * *")
    monkeypatch.setenv("YANMO_TIMEZONE", "Asia/Shanghai")
    verb, *flags = pod.container["args"]
    options = load(StatusOptions, flags, "yanmo status")
    assert verb == "status" and options.serve and options.store == ""
    assert options.serve_address == "all" and options.night_channel == "main"
    assert options.serve_port == METRICS_PORT == pod.container["ports"][0]["containerPort"]
    (plan,) = options.plans().values()
    assert str(plan.zone) == "Asia/Shanghai"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_it_has_the_stores_secrets_and_no_rights(overlay: str) -> None:
    spec = deployment(overlay)["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "yanmo-status"
    bound = [s["name"] for b in named(overlay, "RoleBinding").values() for s in b["subjects"]]
    bound += [s["name"] for b in named(overlay, "ClusterRoleBinding").values() for s in b["subjects"]]
    assert "yanmo-status" not in bound
    mounts = {m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    assert {*SECRETS.values()} <= mounts
    labels = deployment(overlay)["spec"]["template"]["metadata"]["labels"]
    assert deployment(overlay)["spec"]["selector"]["matchLabels"].items() <= labels.items()
