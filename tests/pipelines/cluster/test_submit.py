"""`yanmo submit` against what a real KFP answered."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from servers.replayed import TINY, answers, kubeconfig, one, serving

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load
from yanmo_pipelines.cluster import submit
from yanmo_pipelines.cluster.plan import planned
from yanmo_pipelines.compile import COMPILED
from yanmo_pipelines.pod_options import PodOptions

RUNS = "POST /apis/v2beta1/runs"
QUICK = "--look-seconds=0"
UPLOAD = "POST /apis/v2beta1/pipelines/upload_version"


def submitted(recorded: list[dict[str, Any]], *flags: str, pipeline: str = str(TINY)) -> tuple[int, Any]:
    with serving(recorded) as (address, server):
        code = submit.main([f"--host={address}", f"--pipeline={pipeline}", QUICK, *flags])
    return code, server


def test_no_link_is_printed_that_does_not_open(capfd: pytest.CaptureFixture[str]) -> None:
    """KFP's API answers 404 where its UI has a page."""
    for more, link in (
        ([], "link  none: http://127.0.0.1:"),
        ([one("GET /", 200, "<html>", "text/html")], "/#/runs/details/"),
    ):
        submitted([*answers("green"), *more], "--detach")
        said = capfd.readouterr().out
        assert link in said and ("KFP_UI_ENDPOINT=URL names its UI" in said) == (not more)


def test_a_run_is_uploaded_followed_and_its_verdict_printed(capfd: pytest.CaptureFixture[str]) -> None:
    code, server = submitted(answers("green"), "--ui=https://kubeflow.example/pipeline")
    said = capfd.readouterr()
    assert code == 0
    run_id = said.out.split()[1]
    assert f"link  https://kubeflow.example/pipeline/#/runs/details/{run_id}" in said.out
    assert said.out.splitlines()[-1] == "promote  Promoted: 诗 8.1 bits per character"
    steps = [line.split("submit   ")[1] for line in said.err.splitlines() if "submit   " in line]
    assert [s for s in steps if s.startswith(("curate:", "promote:"))] == [
        "curate: running",
        "curate: done in 10 s",
        "promote: running",
        "promote: done in 10 s",
    ]
    assert steps[-1] == "the run took 51 s"
    assert not any(asked.startswith(UPLOAD) for asked in server.asked), (
        "the recorded KFP had this version: it is not uploaded again"
    )


def test_by_the_address_of_the_ui_it_is_said_that_logs_are_missing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """KFP's UI answers what is not its own with a page, and does not hand on v1alpha1, which has the logs."""
    recorded = answers("green")
    (log,) = (answer for answer in recorded if answer["request"].endswith("/log"))
    log |= {"status": 404, "type": "text/html; charset=utf-8", "body": "<pre>Cannot GET /apis/v1alpha1</pre>"}
    code, _ = submitted(recorded)
    said = capfd.readouterr().err
    assert code == 0 and "promote: done in 10 s\n" in said
    assert said.count("hands on no logs, as KFP's UI does") == 1


def test_chinese_names_and_fields_arrive_as_they_are() -> None:
    code, server = submitted(answers("green"), "--detach", "--name=夜间 试跑", "--set=text=床前明月光")
    (run,) = server.sent(RUNS)
    assert code == 0
    assert run["display_name"] == "夜间 试跑"
    assert run["runtime_config"]["parameters"] == {"text": "床前明月光"}


def test_a_version_that_kfp_lacks_is_uploaded_with_its_pipeline() -> None:
    recorded, made = answers("green"), answers("first")
    code, server = submitted([*made, *recorded], "--detach")
    assert code == 0
    assert sum(asked.startswith(UPLOAD) for asked in server.asked) == 1


def test_a_failed_run_ends_with_its_stages_code_and_cause(capfd: pytest.CaptureFixture[str]) -> None:
    code, _ = submitted(answers("red"))
    said = capfd.readouterr().err
    assert code == 65
    assert (
        "curate failed with exit code 65: --sources 诗集: no such file or folder; expected .jsonl, .txt or "
        ".parquet" in said
    )


def test_a_terminated_run_is_to_be_submitted_again(capfd: pytest.CaptureFixture[str]) -> None:
    recorded = answers("terminated")
    (run_id,) = {
        json.loads(a["body"])["run_id"] for a in recorded if "GET /apis/v2beta1/runs/" in a["request"]
    }
    code, _ = submitted(recorded, f"--follow={run_id}")
    assert code == 75
    assert "terminated; finished stages are kept: submit the same again" in capfd.readouterr().err


def test_what_a_pod_waits_for_is_said_while_it_waits(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = [*answers("waits"), *(a for a in answers("terminated") if "GET" in a["request"])]
    with serving(answers("waits-kubernetes")) as (cluster, _), serving(recorded) as (address, _):
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, cluster))
        flags = [f"--host={address}", f"--pipeline={TINY}", "--set=gpus=1", QUICK]
        submit.main(flags)
    assert "curate waits: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu" in capfd.readouterr().err


def unending(recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The recording of a run that ended, without its end."""
    return [a for a in recorded if '"state":"SUCCEEDED"' not in a["body"] or "/runs/" not in a["request"]]


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_the_run_alone_and_says_how_to_follow_it(signum: int, code: int) -> None:
    recorded = unending(answers("green"))
    with serving(recorded) as (address, server):
        command = [sys.executable, "-m", "yanmo.cli", "submit", f"--host={address}", f"--pipeline={TINY}"]
        process = subprocess.Popen(
            [*command, "--look-seconds=0.01"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may ignore it
        )
        try:
            assert process.stdout
            run_id = process.stdout.readline().split()[1]
            while sum("GET /apis/v2beta1/runs/" in asked for asked in server.asked) < 3:
                time.sleep(0.01)  # until it follows
            process.send_signal(signum)
            _, said = process.communicate()
        finally:
            process.kill()
    assert process.returncode == code
    assert f"the run goes on; follow it again by `yanmo submit --follow {run_id}`" in said
    assert not any("terminate" in asked for asked in server.asked)


def test_two_submits_at_once_share_what_the_faster_one_made() -> None:
    """Pipeline, version and experiment are found missing, and then somebody else has made them."""
    first, green = answers("first"), answers("green")
    taken = [json.loads(json.dumps(a)) for a in answers("refused") if a["status"] == 409]
    by_name = {a["request"].partition("?")[0]: a for a in taken}
    pipelines = {**by_name["POST /apis/v2beta1/pipelines"], "request": "POST /apis/v2beta1/pipelines"}
    missing = [a for a in first if a["status"] == 404 or a["body"] == "{}" or "healthz" in a["request"]]
    of_green = json.loads(next(a["body"] for a in green if "/pipelines/names/" in a["request"]))
    uploads = one(
        f"{UPLOAD}?pipelineid={of_green['pipeline_id']}&name=&display_name=&description=", 409, {"error": ""}
    )
    versions = next(a for a in green if "/versions?" in a["request"])
    nothing = [{**versions, "body": "{}"}]
    code, server = submitted([*missing, *nothing, pipelines, uploads, *green], "--detach")
    assert code == 0
    assert sum(asked.startswith(UPLOAD) for asked in server.asked) == 1
    assert len(server.sent(RUNS)) == 1


def test_an_archived_experiment_is_named() -> None:
    found = [a for a in answers("green") if "/experiments?" not in a["request"]]
    request = next(a["request"] for a in answers("green") if "/experiments?" in a["request"])
    body = {"experiments": [{"experiment_id": "e", "storage_state": "ARCHIVED"}]}
    code, server = submitted([*found, one(request, 200, body)], "--detach")
    assert code == 64 and not server.sent(RUNS)


@pytest.mark.parametrize("option", ["name", "experiment"])
def test_a_name_that_kfp_cannot_hold_is_refused_with_what_it_can(option: str) -> None:
    with pytest.raises(UsageError, match=f"--{option}: 129 characters; give at most 128"):
        load(submit.SubmitOptions, [f"--{option}={'x' * 129}"], "yanmo submit")
    load(submit.SubmitOptions, [f"--{option}={'x' * 128}"], "yanmo submit")


@pytest.mark.parametrize("channel", ["c" * 101, "夜", "a b", "../x"])
def test_a_channel_that_cannot_be_one_is_refused_before_anything_is_sent(
    capfd: pytest.CaptureFixture[str], channel: str
) -> None:
    code, server = submitted(answers("green"), f"--channel={channel}")
    assert code == 64 and not server.sent(RUNS)
    assert "expected up to 100 letters" in capfd.readouterr().err


def test_a_run_that_has_ended_before_its_tasks_is_looked_at_again(capfd: pytest.CaptureFixture[str]) -> None:
    """Seen on a cluster: KFP says that the run failed, and that its task goes on."""
    recorded = answers("red")
    runs = [a for a in recorded if a["request"].startswith("GET /apis/v2beta1/runs/")]
    last = runs[-1]
    early = json.loads(last["body"])
    assert early["state"] == "FAILED"
    for node in early["run_details"]["task_details"]:
        node["state"] = "RUNNING" if node.get("state") == "FAILED" else node.get("state", "")
    others = [a for a in recorded if a is not last]
    code, _ = submitted([*others, {**last, "body": json.dumps(early), "times": 2}, last])
    said = capfd.readouterr().err
    assert code == 65 and "curate failed with exit code 65: --sources" in said
    assert "curate: failed after " in said, "its last state is shown as well"


def test_what_its_pods_are_given_makes_a_version_of_its_own() -> None:
    plain = planned("data_only", (), {})
    assert plain.text == (COMPILED / "data_only.yaml").read_text(encoding="utf-8")
    ours = planned("data_only", (), {}, PodOptions(store_secret="team-b", image_prefix="far.example/"))
    assert ours.version != plain.version
    assert "secretName: team-b" in ours.text and "secretName: yanmo-store" not in ours.text
    assert "image: far.example/yanmo-data" in ours.text
    compiled = str(COMPILED / "data_only.yaml")
    with pytest.raises(UsageError, match="--store-secret team-b: needs a pipeline's name"):
        planned(compiled, (), {}, PodOptions(store_secret="team-b"))
