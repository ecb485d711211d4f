"""`yanmo status` with a store, with a cluster, with both and with neither."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from servers.replayed import answers, kubeconfig, one, serving

from yanmo.common.errors import WorkerLost
from yanmo.nights.index import report_end, rows_shown
from yanmo.nights.night import Words
from yanmo.nights.record import Run, StageEnd
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.failure_card import Card, Details, attach, keep_card
from yanmo.store.runs.lease import Lease
from yanmo.store.runs.unfinished import GIVEN_UP, LEFT, Training, change_unfinished
from yanmo_pipelines.cluster.status import command


def reference(stage: str, digit: str) -> Reference:
    key = digit * 64
    return Reference(
        stage=stage,
        key=key,
        manifest_uri=f"cas/{stage}/{key}/MANIFEST.json",
        manifest_sha256=key,
        content_digest=key,
    )


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """Two channels; one training goes on, one was left."""
    place = FileStore(tmp_path / "store")
    move_pointer(place, "main", "train", reference("train", "a"))
    move_pointer(place, "main", "champion", reference("train", "b"))
    move_pointer(place, "nightly", "curate", reference("curate", "c"))
    place.create(f"runs/train/{'d' * 64}/WORK.json", b"{}")
    return place


def test_a_store_alone_is_shown_and_what_could_not_be_asked_said(
    store: FileStore, capfd: pytest.CaptureFixture[str]
) -> None:
    lease = Lease(store, f"runs/train/{'e' * 64}/LEASE.json", "a")
    assert lease.acquire()
    try:
        code = command.main([f"--store={store.root}"])
    finally:
        lease.release()
    out = capfd.readouterr().out
    assert code == 0
    assert "channel main\n  champion   train/bbbbbbbbbbbb  " in out
    assert "\n  train      train/aaaaaaaaaaaa  " in out
    assert "channel nightly\n  champion   none yet\n  curate     curate/cccccccccccc  " in out
    assert "unfinished train/eeeeeeeeeeee  held by " in out
    assert "unfinished train/dddddddddddd  nobody works on it; last saved " in out
    assert "not asked: kfp: --host is missing" in out
    assert "not asked: kubernetes: no Kubernetes cluster is known here" in out


def test_trainings_that_were_set_aside_are_shown_with_what_takes_them_up_again(
    store: FileStore, capfd: pytest.CaptureFixture[str]
) -> None:
    given_up = Training(
        key="f" * 64, revision=1, options={}, execution={}, inputs={}, run_id="night-1",
        state=GIVEN_UP, why="3 runs in a row came no further than its beginning",
    )  # fmt: skip
    left = dataclasses.replace(given_up, key="e" * 64, state=LEFT, why="left by li")
    change_unfinished(store, "main", lambda record: record.with_(given_up).with_(left))
    assert command.main([f"--store={store.root}"]) == 0
    out = capfd.readouterr().out
    assert "  given up   train/ffffffffffff (no checkpoint yet; begun " in out and "3 runs in a row" in out
    again = "             to take it up again: train_unfinished=train/{} on a run's form\n"
    assert again.format("f" * 12) in out and again.format("e" * 12) in out
    assert "  left       train/eeeeeeeeeeee (no checkpoint yet; begun " in out and "left by li" in out
    store.delete("runs/train/unfinished/main.json")
    store.create("runs/train/unfinished/main.json", b"{")
    assert command.main([f"--store={store.root}"]) == 0, "the rest is shown"
    assert "damaged runs/train/unfinished/main.json: " in capfd.readouterr().out


def test_work_that_failed_is_shown_with_its_card_until_it_is_committed(
    store: FileStore, capfd: pytest.CaptureFixture[str]
) -> None:
    error = WorkerLost("rank 1 of 2 was killed")
    attach(error, Details(where="rank 1 of 2, in training step 5", why="was killed by SIGKILL"))
    key = "e" * 64
    keep_card(store, key, Card.of("train", error, "yanmo rerun train"), error)
    assert command.main([f"--store={store.root}"]) == 0
    lines = [line.strip() for line in capfd.readouterr().out.splitlines()]
    at = next(number for number, line in enumerate(lines) if "unfinished train/eeeeeeeeeeee" in line)
    assert "train failed with exit code 75 (may pass: try again)" in lines[at + 1]
    assert lines[at + 2 : at + 5] == [
        "which: rank 1 of 2, in training step 5",
        "why: was killed by SIGKILL",
        "to run it again: yanmo rerun train",
    ]
    assert command.main([f"--store={store.root}", "--json"]) == 0
    assert "was killed by SIGKILL" in capfd.readouterr().out
    store.create(f"cas/train/{key}/MANIFEST.json", b"{}")
    assert command.main([f"--store={store.root}"]) == 0
    assert "eeeeeeeeeeee" not in capfd.readouterr().out


def job_that_failed() -> list[dict[str, Any]]:
    """Synthetic: a Job whose second pod left a card, beside one whose pod runs."""
    meta = {"name": "rerun-train-1", "labels": {"yanmo.dev/stage": "train"}}
    condition = {"type": "Failed", "status": "True", "message": "exit code 78 matching FailJob"}
    card = "train failed with exit code 78 (the machine lacks something)\nwhy: out of \u202ememory\n"
    ends = [{"exitCode": 75, "message": "the first"}, {"exitCode": 78, "message": card}]
    pods = [
        {
            "metadata": {"name": f"p{number}", "creationTimestamp": f"2026-11-22T20:0{number}:00Z"},
            "status": {"containerStatuses": [{"state": {"terminated": end}}]},
        }
        for number, end in enumerate(ends)
    ]
    jobs = "jobs?limit=500&labelSelector=app.kubernetes.io%2Fname%3Dyanmo"
    of_job = "pods?limit=500&labelSelector=batch.kubernetes.io%2Fjob-name%3Drerun-train-1"
    job = {"metadata": meta, "status": {"conditions": [condition]}}
    runs = {"metadata": {"name": "rerun-curate-1"}, "status": {"active": 1}}
    return [
        one(f"GET /apis/batch/v1/namespaces/kubeflow/{jobs}", 200, {"items": [job, runs]}),
        one(f"GET /api/v1/namespaces/kubeflow/{of_job}", 200, {"items": pods}),
    ]


def test_the_last_message_of_a_failed_jobs_pods_is_shown(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(job_that_failed()) as (cluster, server):
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, cluster))
        command.main([])
    out = capfd.readouterr().out
    assert "why: out of \\u202ememory" in out and "the first" not in out, server.asked
    assert not [asked for asked in server.asked if "events" in asked], "why a Job that runs has no pod"


def test_a_released_lease_is_no_work(store: FileStore, capfd: pytest.CaptureFixture[str]) -> None:
    lease = Lease(store, f"runs/train/{'e' * 64}/LEASE.json", "a")
    assert lease.acquire()
    lease.release()
    assert command.main([f"--store={store.root}", "--channel=main"]) == 0
    out = capfd.readouterr().out
    assert "eeeeeeeeeeee" not in out and "channel nightly" not in out


def test_a_damaged_pointer_is_named(store: FileStore, capfd: pytest.CaptureFixture[str]) -> None:
    (Path(store.root) / "pointers/main/train.json").write_text("{", encoding="utf-8")
    assert command.main([f"--store={store.root}"]) == 0
    out = capfd.readouterr().out
    assert "damaged main/train: " in out and "champion   train/bbbb" in out


def test_a_cluster_alone_is_shown(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(answers("status")) as (kfp, _), serving(answers("status-kubernetes")) as (cluster, _):
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, cluster))
        code = command.main([f"--host={kfp}", "--runs=5", "--json"])
        found: dict[str, Any] = json.loads(capfd.readouterr().out)
        assert command.main([f"--host={kfp}", "--runs=5"]) == 0
    shown = capfd.readouterr().out
    assert code == 0 and found["store"] is None and "store" in found["unasked"]
    failed = [run for run in found["runs"] if run["state"] == "FAILED"]
    assert failed and all("failed with exit code 6" in run["at"] for run in failed)
    assert {pod["state"] for pod in found["pods"]} <= {"running", "starting", "waits"}
    waits = [pod for pod in found["pods"] if pod["state"] == "waits"]
    assert all("Insufficient cpu" in pod["where"] for pod in waits)
    for each in (*found["runs"], *found["pods"], *found["jobs"]):
        assert each.get("id", each["name"]) in shown


def pod_node(run_id: str, name: str, phase: str, message: str) -> dict[str, Any]:
    """Synthetic: what Argo's workflow of a run says of one pod."""
    path = "/apis/argoproj.io/v1alpha1/namespaces/kubeflow/workflows"
    node = {"type": "Pod", "phase": phase, "name": name, "message": message}
    asked = f"GET {path}?limit=500&labelSelector=pipeline%2Frunid%3D{run_id}"
    return one(asked, 200, {"items": [{"status": {"nodes": {"a": node}}}]})


def test_what_only_argo_knows_of_kfps_pods_is_shown(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a pod that was killed for its memory no log is left; one that a quota refuses was never made."""
    recorded = [answer for answer in answers("status") if "/log" not in answer["request"]]
    listed = next(answer for answer in recorded if answer["request"].startswith("GET /apis/v2beta1/runs?"))
    runs = json.loads(listed["body"])["runs"]
    killed = next(run for run in runs if run["state"] == "FAILED")  # its task resolve
    refused = next(run for run in runs if run["state"] == "RUNNING")  # its task resolve goes on
    listed["body"] = json.dumps({"runs": [killed, refused]})
    first, why = "language-model-a(0).root(0)", 'pods "a-1" is forbidden: exceeded quota: team'
    oom = "main: OOMKilled (exit code 137)"
    of_killed = pod_node(killed["run_id"], f"{first}.resolve(0)", "Failed", oom)
    of_refused = pod_node(refused["run_id"], f"{first}.resolve(0)", "Pending", why)
    kubernetes = [*answers("status-kubernetes"), of_killed, of_refused]
    with serving(recorded) as (kfp, _), serving(kubernetes) as (cluster, _):
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, cluster))
        assert command.main([f"--host={kfp}", "--runs=5"]) == 0
    out = capfd.readouterr().out
    assert f"resolve failed without a word of its own: {oom}: it needed more memory than its limit" in out
    assert "resolve running; resolve: its pod is forbidden: exceeded quota: team" in out


def test_with_neither_it_ends_with_what_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 64
    out = capfd.readouterr().out
    assert [line.split(":")[1].strip() for line in out.splitlines()] == ["store", "kubernetes", "kfp"]


def run_of(store: FileStore, run_id: str) -> Run:
    return Run(store=store, channel="new", run_id=run_id, timezone="UTC", last="promote")


def test_runs_that_never_said_so_stand_as_kfp_and_kubernetes_say(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Terminated in the UI, failed, a Job that is over, one that both have forgotten, one that goes on; a run
    and a Job too old to be shown.
    """
    ids = ("stopped", "red", "old", "job", "old-job", "forgotten", "lives")
    for run_id in ids:
        report_end(run_of(store, run_id), StageEnd(task="resolve", state="done"))
    history = [{"state": "RUNNING"}, {"state": "CANCELING"}]
    of_kfp = {
        "stopped": {"state": "FAILED", "state_history": history},
        "red": {"state": "FAILED"},
        "lives": {"state": "RUNNING"},
        "old": {"state": "SUCCEEDED"},
    }
    of_kfp = {n: {"run_id": n, **said} for n, said in of_kfp.items()}
    listed = next(a for a in answers("status") if a["request"].startswith("GET /apis/v2beta1/runs?"))
    newest = [said for name, said in of_kfp.items() if name != "old"]
    runs = [one(listed["request"], 200, {"runs": newest})]
    runs += [one(f"GET /apis/v2beta1/runs/{n}", 200, said) for n, said in of_kfp.items()]
    unknown = {"code": 5, "message": "Failed to get a run: ResourceNotFoundError: Run not found"}
    runs += [one(f"GET /apis/v2beta1/runs/{n}", 404, unknown) for n in ("old-job", "forgotten")]
    done, failed = ({"conditions": [{"type": kind, "status": "True"}]} for kind in ("Complete", "Failed"))
    job = {"metadata": {"name": "j", "uid": "job"}, "status": done}
    old_job = {"metadata": {"name": "k", "uid": "old-job"}, "status": failed}
    of_jobs = "GET /apis/batch/v1/namespaces/kubeflow/jobs?limit=500"
    ours = f"{of_jobs}&labelSelector=app.kubernetes.io%2Fname%3Dyanmo"
    jobs = [one(ours, 200, {"items": [job]}), one(of_jobs, 200, {"items": [job, old_job]})]
    with (
        serving([a for a in answers("status") if "/runs" not in a["request"]] + runs) as (kfp, _),
        serving(jobs) as (cluster, server),
    ):
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, cluster))
        assert command.main([f"--host={kfp}", f"--store={store.root}", "--runs=5"]) == 0
        assert sum(asked.endswith("jobs?limit=500") for asked in server.asked) == 1
    found = {row.run_id: row.state for row in rows_shown(store, "new")}
    assert found == {
        "stopped": "terminated", "red": "failed", "old": "done", "job": "done", "old-job": "failed",
        "forgotten": "begun", "lives": "begun"
    }  # fmt: skip


def test_the_last_night_is_named_with_its_page(store: FileStore, capfd: pytest.CaptureFixture[str]) -> None:
    for name, words in (("run-1", "The night before."), ("run-2", "train failed: no space left.")):
        run = run_of(store, name)
        end = StageEnd(task="train", state="failed", sentence=Words(words, "失败"), seconds=5400.0)
        report_end(run, end)
    assert command.main([f"--store={store.root}"]) == 0
    lines = capfd.readouterr().out.splitlines()
    start = lines.index("channel new")
    [night, _] = rows_shown(store, "new")
    assert lines[start + 1 : start + 5] == [
        "  champion   none yet",
        f"  night      {night.date}  failed, 1 h 30 min",
        "             train failed: no space left.",
        f"             {store.uri}/nights/new/index.html",
    ]
    assert command.main([f"--store={store.root}", "--json", "--channel", "new"]) == 0
    (channel,) = json.loads(capfd.readouterr().out)["store"]["channels"]
    assert channel["night"]["state"] == "failed"


def test_a_damaged_index_of_nights_is_named_and_hides_nothing_else(
    store: FileStore, capfd: pytest.CaptureFixture[str]
) -> None:
    store.create("nights/main/index.json", b"{torn")
    assert command.main([f"--store={store.root}"]) == 0
    out = capfd.readouterr().out
    assert "damaged nights/main/index: " in out.replace(".json:", ":")
    assert "channel main\n  champion   train/bbbbbbbbbbbb  " in out
