"""The runtime around a stage's work: exit codes, keys, pointers, references, signals."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toy_stage
from config_file import written
from servers import s3
from toy_outputs import latest, wait_until

from yanmo.options.yaml_file import read_yaml
from yanmo.stage.run import _serve, main, tell_children
from yanmo.stage.run_telemetry import telemetry_of
from yanmo.stage.stage_run import StageRun, Steps
from yanmo.store.commit import Result
from yanmo.store.file_store import FileStore
from yanmo.store.pointers import read_pointer
from yanmo.store.runs.lease import holder_in
from yanmo.store.runs.run_record import add_to_run
from yanmo.store.s3.credentials import find_endpoint

Run = Callable[..., int]


def test_a_run_commits_moves_its_pointers_and_records_its_options(store: FileStore, toy: Run) -> None:
    assert toy("--text=词", "--workers=3", "--run-id=r1") == 0
    made = latest(store)
    assert made.path("text.txt").read_text(encoding="utf-8") == "词"
    assert latest(store, "tokenizer").path("tokenizer.json").read_text(encoding="utf-8") == "{}"
    assert read_yaml(made.path("config.yaml")) == {"text": "词", "workers": "3"}
    assert "yanmo_toy_documents_total 1.0" in made.path("metrics.prom").read_text(encoding="utf-8")
    assert made.manifest.run_id == "r1" and made.manifest.execution == {"workers": 3}


def test_the_recorded_config_makes_the_same_key_again(store: FileStore, toy: Run, tmp_path: Path) -> None:
    toy("--text=词")
    config = tmp_path / "again.yaml"
    config.write_text(latest(store).path("config.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    before = latest(store).reference
    assert toy(f"--config={config}", "--end=bug") == 0, "the bug is never reached"
    assert latest(store).reference == before


def test_a_committed_key_moves_the_pointer_back_without_work(store: FileStore, toy: Run) -> None:
    toy("--text=词")
    first = latest(store).reference
    toy("--text=赋")
    assert latest(store).reference != first
    assert toy("--text=词", "--end=bug") == 0
    assert latest(store).reference == first


def test_an_input_is_a_file_of_a_reference_a_key_or_a_pointer(
    store: FileStore, toy: Run, tmp_path: Path
) -> None:
    reference = tmp_path / "reference.json"
    toy("--text=春")
    spring = latest(store)
    reference.write_text(spring.reference.to_json(), encoding="utf-8")
    by = [f"--earlier={reference}", f"--earlier=toy/{spring.manifest.key}", "--earlier=latest"]
    for number, flag in enumerate(by):
        toy("--text=春", "--pointer=toy")
        assert toy(flag, "--text=江") == 0, flag
        assert latest(store).path("text.txt").read_text(encoding="utf-8") == "春江", number


def test_inputs_of_a_run_are_what_it_made_or_found_and_else_the_latest(
    store: FileStore, toy: Run, caplog: pytest.LogCaptureFixture
) -> None:
    toy("--text=春", "--run-id=night-1")
    toy("--text=江", "--run-id=night-2")
    assert toy("--earlier=", "--inputs=run:night-1", "--text=花") == 0
    assert latest(store).path("text.txt").read_text(encoding="utf-8") == "春花"
    toy("--text=江", "--run-id=night-3")  # found, not made
    toy("--text=夜", "--pointer=none", "--run-id=night-4")
    for run in ("night-2", "night-3"):
        assert toy("--earlier=", f"--inputs=run:{run}", "--text=月") == 0
        assert latest(store).path("text.txt").read_text(encoding="utf-8") == "江月", run
    add_to_run(store, "dev", "of-another-stage", {"other": latest(store).reference})
    assert toy("--earlier=", "--inputs=run:of-another-stage", "--text=明") == 0
    assert latest(store).path("text.txt").read_text(encoding="utf-8") == "江月明"
    assert toy("--earlier=", "--inputs=", "--text=照") == 0, "nothing given is `latest`"
    for nobody in ("run:night-4", "run:", "run:night-1/../night-1"):
        assert toy("--earlier=", f"--inputs={nobody}") == 64
    assert "has no run of that id" in caplog.text


def test_the_lease_of_a_run_that_paused_says_for_whom_it_was(store: FileStore, toy: Run) -> None:
    assert toy("--end=pause", "--run-id=night-1", "--channel=nightly") == 0
    (lease,) = (path.read_bytes() for path in store.root.glob("runs/toy/*/LEASE.json"))
    assert holder_in(lease).note == {"channel": "nightly", "run_id": "night-1"}


def test_a_disk_is_as_large_as_a_user_may_fill_it(store: FileStore) -> None:
    """What is kept for root is neither free nor used: counted in the size, it would make a disk look full."""
    options = toy_stage.ToyOptions(store=str(store.root), metrics_port=-1)
    telemetry = telemetry_of(toy_stage.STAGE, options)
    size = None
    while size is None:  # it is measured beside
        telemetry.ask()
        size = telemetry.value("disk_bytes", room="stage")
    disk = os.statvfs(store.root.parent)
    may_be_used = (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize
    assert size == pytest.approx(may_be_used, rel=0.01)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--txet=x"], 64, "unknown option --txet; did you mean --text?; see yanmo toy --help"),
        (["--text="], 64, "--text is empty"),
        (["--config=no.yaml"], 64, "cannot read options from no.yaml"),
        ([f"--config={written('texts: x')}"], 64, ".yaml: unknown option 'texts'"),
        (["--store=s3://b/a b"], 64, "expected s3://bucket/prefix"),
        (["--channel=a b"], 64, "--channel 'a b'"),
        (["--executor-input={}"], 64, "expected KFP's executor input"),
        (["--earlier=toy/" + "0" * 64], 65, "has no such output"),
        (["--earlier=/etc/passwd"], 65, "/etc/passwd: not a reference"),
        (["--earlier=toy/c26c70725eb8"], 65, "the first 4 digits are enough"),
        (["--inputs=latset"], 64, "expected latest or run:ID"),
        (["--earlier=" + "x" * 5000], 64, "or a file that holds a reference"),
        (["--earlier=../x"], 64, "or a file that holds a reference"),
        (["--end=data"], 65, "line 3 of raw.txt"),
        (["--end=bug"], 70, "a bug in Yanmo"),
    ],
)
def test_each_way_to_fail_has_its_exit_code_and_its_words(
    store: FileStore, toy: Run, flags: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toy(*flags) == code
    stderr = capsys.readouterr().err
    assert words in stderr
    last = stderr.splitlines()[-1]
    assert f"toy      toy error {code}: " in last and len(last) <= 80, last
    assert ("Traceback" in stderr) == (code == 70), "only a bug shows a traceback"
    assert not [info for info in store.list("") if info.name.startswith(("cas/", "pointers/"))]


@pytest.fixture
def executor_input(tmp_path: Path) -> dict[str, Any]:
    """What KFP's local orchestrator passes; no folder of it exists."""
    root = tmp_path / "kfp/task"
    types = {"written": "Dataset", "tokenizer": "Model", "page": "HTML", "metrics": "Metrics"}
    artifacts = {
        name: {"artifacts": [{"name": name, "type": {"schemaTitle": f"system.{t}"}, "uri": str(root / name)}]}
        for name, t in types.items()
    }
    parameters = {name: {"outputFile": str(root / name)} for name in ("status", "length")}
    outputs = {
        "artifacts": artifacts,
        "parameters": parameters,
        "outputFile": str(root / "executor_output.json"),
    }
    return {"inputs": {}, "outputs": outputs}


def body(executor_input: dict[str, Any], name: str) -> str:
    outputs = executor_input["outputs"]
    path = (
        outputs["parameters"][name]["outputFile"]
        if name in outputs["parameters"]
        else (outputs["artifacts"][name]["artifacts"][0]["uri"])
    )
    return Path(path).read_text(encoding="utf-8")


def test_kfp_gets_references_the_page_parameters_and_metadata(
    store: FileStore, toy: Run, executor_input: dict[str, Any]
) -> None:
    assert toy("--text=词", f"--executor-input={json.dumps(executor_input)}") == 0
    assert body(executor_input, "written") == latest(store).reference.to_json()
    assert body(executor_input, "tokenizer") == latest(store, "tokenizer").reference.to_json()
    assert body(executor_input, "page") == "<p>诗</p>"
    assert (body(executor_input, "status"), body(executor_input, "length")) == ("made", "1")
    listed = json.loads(Path(executor_input["outputs"]["outputFile"]).read_text(encoding="utf-8"))[
        "artifacts"
    ]
    assert listed.keys() == {"written", "tokenizer", "page", "metrics"}
    assert listed["metrics"]["artifacts"][0]["metadata"] == {"n": 1}


def test_a_skipped_stage_passes_on_none_and_moves_no_pointer(
    store: FileStore, toy: Run, executor_input: dict[str, Any]
) -> None:
    assert toy("--end=skip", f"--executor-input={json.dumps(executor_input)}") == 0
    assert (body(executor_input, "written"), body(executor_input, "status")) == ("none\n", "skipped")
    assert read_pointer(store, "dev", "toy") is None
    assert not list(store.root.rglob("checkpoint"))


@pytest.mark.parametrize(("end", "code"), [("pause", 0), ("stopped", 75)])
def test_a_pause_is_passed_on_from_stage_to_stage_and_nothing_is_committed(
    store: FileStore, toy: Run, executor_input: dict[str, Any], tmp_path: Path, end: str, code: int
) -> None:
    """Its own hours end with 0; whoever stopped it from outside must not find a Job that succeeded."""
    file = tmp_path / "said.json"
    pipeline = f"--executor-input={json.dumps(executor_input)}"
    assert toy(f"--end={end}", pipeline) == code
    said = body(executor_input, "written")
    file.write_text(said, encoding="utf-8")
    assert body(executor_input, "status") == "paused"
    assert len(list(store.root.rglob("checkpoint"))) == 1, "paused work is kept"
    for given in (file, said):
        assert toy(f"--earlier={given}", pipeline) == 0
        assert body(executor_input, "written") == said
        assert (body(executor_input, "page"), body(executor_input, "status")) == ("none\n", "paused")
    assert json.loads(said)["where"] == "step 3 of 9"
    assert not list(store.root.rglob("MANIFEST.json"))
    assert read_pointer(store, "dev", "toy") is None


def test_none_passed_on_is_none_for_the_next_stage(
    store: FileStore, toy: Run, executor_input: dict[str, Any]
) -> None:
    toy("--end=skip", f"--executor-input={json.dumps(executor_input)}")
    path = executor_input["outputs"]["artifacts"]["written"]["artifacts"][0]["uri"]
    assert toy(f"--earlier={path}") == 0
    assert latest(store).manifest.inputs["earlier"] is None


def test_in_a_pipeline_an_option_given_twice_is_refused(
    toy: Run, executor_input: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = f"--executor-input={json.dumps(executor_input)}"
    assert toy(f"--config={written('text: 词')}", "--text=赋", pipeline) == 64
    assert "--config names --text, which the pipeline itself sets" in capsys.readouterr().err
    assert toy(f"--config={written('workers: 2')}", "--text=赋", pipeline) == 0
    assert toy(f"--config={written('text: 词')}", "--text=赋") == 0, "by hand, the flag wins"


def test_where_the_bytes_of_an_artifact_lie_is_said_as_other_tools_write_it(
    toy: Run,
    executor_input: dict[str, Any],
    s3_server: s3.S3Server,
    s3_place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a bare KFP the store's own name is minio://..., which pyarrow, s3fs and others do not know."""
    for name, value in {**s3_server.environment(), "AWS_ENDPOINT_URL_S3": ""}.items():
        monkeypatch.setenv(name, value)  # the last is set by the stage for its children
    pipeline = f"--executor-input={json.dumps(executor_input)}"
    assert toy("--text=词", f"--store=minio://{s3_place}/kfp", pipeline) == 0
    listed = json.loads(Path(executor_input["outputs"]["outputFile"]).read_text(encoding="utf-8"))
    said = listed["artifacts"]["written"]["artifacts"][0]["metadata"]["bytes_at"]
    bucket, _, prefix = said.removeprefix("s3://").partition("/")
    assert s3_server.client().stat_object(bucket, f"{prefix}/text.txt").size == 3


def test_sources_lie_where_the_store_does_unless_a_server_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a bare KFP the store is minio://mlpipeline/yanmo, and s3://mlpipeline/texts is beside it."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(tmp_path))
    tell_children(toy_stage.ToyOptions(store=str(tmp_path)))
    assert find_endpoint("", "s3") == "https://s3.amazonaws.com"
    tell_children(toy_stage.ToyOptions(store="minio://mlpipeline/yanmo"))
    assert find_endpoint("", "s3") == find_endpoint("", "minio") != "https://s3.amazonaws.com"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://named:9000")
    tell_children(toy_stage.ToyOptions(store="minio://mlpipeline/yanmo"))
    assert find_endpoint("", "s3") == "http://named:9000"


LAST_LINES = {
    "shell": ("", {}, ()),
    "pipeline": (
        "yanmo rerun toy --namespace=team --channel=dev --inputs=run:5a1b",
        {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "YANMO_NAMESPACE": "team"},
        ("kfp",),
    ),
    "job": (
        "yanmo rerun toy --channel=dev --inputs=run:7 --set=toy.text=c",
        {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
        ("--inputs=run:7", "--options=toy.text=c"),
    ),
    "yanmo run": ("", {}, ("kfp",)),
}


@pytest.mark.parametrize("where", LAST_LINES)
def test_a_failed_run_says_how_it_is_run_again_and_last_what_ended_it(
    store: FileStore,
    toy: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    where: str,
) -> None:
    command, environment, kfp = LAST_LINES[where]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    empty = {"outputs": {"outputFile": str(tmp_path / "out.json")}}
    flags = ["--run-id=5a1b", f"--executor-input={json.dumps(empty)}"] if "kfp" in kfp else [*kfp]
    if "--inputs=run:7" in flags:
        add_to_run(store, "dev", "7", {})
    for number in range(2):  # a retry of a pipeline ends by its record, with the same lines
        assert toy("--end=data", "--text=a b", *flags) == 65
        *_, before, last = capsys.readouterr().err.splitlines()
        assert (
            last[9:] == "toy      toy error 65: line 3 of raw.txt: not a poem; take it out"
            and len(last) <= 80
        )
        asked = f"toy      to run it again, once that is mended: {command}"
        assert bool(re.fullmatch(asked, before[9:])) == bool(command), (number, before)


def start_toy(store: FileStore, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, toy_stage.__file__, f"--store={store.root}", *flags]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "components")}
    # A shell starts its background jobs with Ctrl-C ignored, and that is inherited.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, preexec_fn=heed)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_stage_orderly_and_the_next_start_does_not_wait(
    store: FileStore, toy: Run, signum: signal.Signals, code: int
) -> None:
    process = start_toy(store, "--sleep-seconds=60")
    try:
        wait_until(lambda: any(store.root.glob("cas/toy/*/*/config.yaml")), "the work has begun")
        process.send_signal(signum)
        assert process.wait(20) == code
    finally:
        process.kill()
        said = process.communicate()[1]
    assert "Traceback" not in said
    if signum == signal.SIGTERM:
        assert said.splitlines()[-1].endswith("toy error 143: asked to stop")
    assert not any(store.root.glob("cas/toy/*/*"))
    started = time.monotonic()
    assert toy() == 0 and time.monotonic() - started < 5


def test_a_run_that_waited_for_another_says_that_it_adopted_the_result(store: FileStore) -> None:
    first = start_toy(store, "--sleep-seconds=0.5", "--metrics-port=-1")
    wait_until(lambda: any(store.root.glob("cas/toy/*/*/config.yaml")), "the work has begun")
    first.send_signal(signal.SIGSTOP)
    second = start_toy(store, "--metrics-port=-1")
    assert second.stderr and any("waiting for it" in line for line in second.stderr)
    first.send_signal(signal.SIGCONT)
    (_, first_said), (_, second_said) = first.communicate(timeout=30), second.communicate(timeout=30)
    assert "committed toy/" in first_said and "adopted" not in first_said
    assert "adopted toy/" in second_said and "committed toy/" not in second_said


def test_a_part_that_a_running_stage_uses_is_named_for_gc_before_its_commit(store: FileStore) -> None:
    def work(run: StageRun) -> Result:
        run.part("tokenizer", 1, {}, {}, toy_stage.build_part)
        (inputs,) = (store.root / "runs/toy" / run.key).glob("INPUTS.json")
        pinned = json.loads(inputs.read_text(encoding="utf-8"))["inputs"]
        assert [one["stage"] for one in pinned.values()] == ["tokenizer"]
        return Result(counts={})

    assert main(toy_stage.STAGE, Steps(work), [f"--store={store.root}", "--metrics-port=-1"]) == 0


def test_who_asked_a_stage_to_stop_does_not_wait_for_a_scrape(store: FileStore) -> None:
    """A pause by its own hours is waited for, one by a signal is not."""
    found = {}
    for end in ("pause", "stopped"):
        options = toy_stage.ToyOptions(store=store.uri, end=end, metrics_port=0, metrics_wait_seconds=5.0)
        with telemetry_of(toy_stage.STAGE, options) as telemetry:
            _serve(
                toy_stage.STAGE, options, frozenset(), toy_stage.STEPS, time.monotonic(), None, telemetry, ""
            )
            assert telemetry.value("state", room="stage", state="paused") == 1
            found[end] = telemetry.wait_seconds
    assert found == {"pause": 5.0, "stopped": 0.0}
