"""`yanmo doctor` against what a real cluster answered, sound and not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from servers import s3
from servers.replayed import answers, kubeconfig, one, serving

from yanmo_pipelines import resources
from yanmo_pipelines.cluster import doctor
from yanmo_pipelines.cluster.checks import CHECKS

Doctor = Callable[..., tuple[int, dict[str, list[dict[str, Any]]]]]
HEALTH = "GET /apis/v2beta1/healthz"


@pytest.fixture
def examined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Iterator[Doctor]:
    """Doctor's exit code and findings by check, of a cluster that answers as recorded."""
    with ExitStack() as servers:

        def examine(kfp: list[Any], cluster: list[Any] | None, *flags: str) -> Any:
            address, _ = servers.enter_context(serving(kfp))
            config = str(tmp_path / "none")
            if cluster is not None:
                config = kubeconfig(tmp_path, servers.enter_context(serving(cluster))[0])
            monkeypatch.setenv("KUBECONFIG", config)
            code = doctor.main([f"--host={address}", "--json", "--look-seconds=0", *flags])
            found: dict[str, list[dict[str, Any]]] = {}
            for line in capfd.readouterr().out.splitlines():
                finding = json.loads(line)
                found.setdefault(finding["check"], []).append(finding)
            return code, found

        yield examine


def replaced(recorded: list[Any], *others: dict[str, Any]) -> list[Any]:
    """A recording with other answers to some requests."""
    requests = {other["request"] for other in others}
    return [*others, *(a for a in recorded if a["request"] not in requests)]


def test_a_sound_installation_is_green_and_what_is_worth_knowing_is_said(examined: Doctor) -> None:
    code, found = examined(answers("doctor"), answers("doctor-kubernetes"))
    assert code == 0
    assert found.keys() == CHECKS.keys()
    assert {f["state"] for each in found.values() for f in each} == {"ok", "note", "left"}
    assert found["kfp"][0]["state"] == found["auth"][0]["state"] == "ok"


def test_without_a_cluster_what_could_not_be_asked_is_not_green(examined: Doctor) -> None:
    code, found = examined(answers("doctor"), None)
    assert code == 77
    assert found["kfp"][0]["state"] == "ok"
    assert found["gpu"][0]["state"] == found["secrets"][0]["state"] == "unasked"
    assert "set KUBECONFIG, or give --context" in found["gpu"][0]["said"]


def test_what_may_not_be_asked_is_not_green(examined: Doctor) -> None:
    code, found = examined(answers("nobody"), answers("nobody-kubernetes"), "--namespace=operators-full")
    assert code == 78
    assert found["rights"][0]["state"] == "bad"
    assert "create jobs (rerun)" in found["rights"][0]["said"]
    for check in ("secrets", "gpu", "images"):
        assert [f["state"] for f in found[check]] == ["unasked"], check
        assert "no right to that; ask for the role of yanmo-operator" in found[check][0]["said"]


def test_missing_secrets(examined: Doctor) -> None:
    flags = ("--namespace=operators-full", "--only=secrets")
    code, found = examined(answers("full"), answers("full-kubernetes"), *flags)
    assert code == 78
    assert "neither Secret yanmo-store nor KFP's mlpipeline-minio-artifact" in found["secrets"][0]["said"]
    assert found["secrets"][0]["remedy"].startswith("kubectl create secret generic yanmo-store")


@pytest.mark.parametrize(
    ("status", "code", "state"), [(401, 78, "bad"), (403, 78, "bad"), (500, 75, "away"), (503, 75, "away")]
)
def test_kfp_that_says_no(examined: Doctor, status: int, code: int, state: str) -> None:
    refused = one("GET /apis/v2beta1/runs?page_size=1&sort_by=created_at+desc", status, {"message": "no"})
    got, found = examined(replaced(answers("doctor"), refused), None, "--only=auth")
    assert (got, found["auth"][0]["state"]) == (code, state)
    assert f"answered {status} (no)" in found["auth"][0]["said"]


def test_a_column_of_which_no_node_has_the_gpus(examined: Doctor) -> None:
    flags = ("--only=gpu", "--only=images", "--resources=gpu", "--image-prefix=far.example/")
    code, found = examined([], answers("doctor-kubernetes"), *flags)
    assert code == 78
    assert found["gpu"][0]["state"] == "bad" and "device plugin" in found["gpu"][0]["remedy"]
    said = [one["said"].partition(" is on no node")[0] for one in found["images"]]
    assert said == [f"far.example/yanmo-{image}:0.2.0" for image in ("data", "train", "cluster")]
    _, found = examined([], answers("doctor-kubernetes"), "--only=images", "--ray")
    assert found["images"][0]["said"].startswith("yanmo-data-ray:0.2.0 is on no node")


def test_a_round_trip_through_a_real_bucket(
    examined: Doctor, s3_server: s3.S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    code, found = examined([], None, "--only=store", f"--store=s3://{s3_place}/doctor")
    assert code == 0, found
    assert found["store"][0]["said"].endswith("written, read, removed; conditional writes are honoured")
    code, found = examined([], None, "--only=store", "--store=s3://no-such-bucket/doctor")
    assert code == 78 and "there is no such bucket" in found["store"][0]["said"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    code, found = examined([], None, "--only=store", f"--store=s3://{s3_place}/doctor")
    assert code == 78 and "403" in found["store"][0]["said"]


def test_in_a_pod_of_kfps_that_names_no_store_its_bucket_is_tried(
    examined: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody answers there: what is looked at is which bucket doctor asks for."""
    monkeypatch.setattr(
        resources, "SECRETS", resources.SECRETS | {"mlpipeline-minio-artifact": str(tmp_path)}
    )
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ("YANMO_WAIT_SECONDS", "0"),
    ):
        monkeypatch.setenv(name, value)
    code, found = examined([], None, "--only=store")
    assert code == 75 and "minio://mlpipeline/yanmo" in found["store"][0]["said"], found
