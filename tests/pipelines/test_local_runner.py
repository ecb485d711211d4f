"""The compiled pipeline on this machine: real processes, real signals, real exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import is_alive
from servers import s3

from yanmo.common.errors import EnvironmentFault
from yanmo.options.shared import store_flags
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo_pipelines import local_runner
from yanmo_pipelines.local_runner import ProcessHandler, run_pipeline
from yanmo_pipelines.resources import IN_PODS, RAY_VARIABLES
from yanmo_pipelines.run import PipelineRunOptions, main

Start = Callable[..., "subprocess.Popen[str]"]


def finish(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def tasks_of(out: str) -> list[str]:
    table = out[out.index("stage  ") :].splitlines()[1:]
    return [
        line.split()[0]
        for line in table
        if line.strip() and line.split()[0] not in ("pipeline", "all", "store")
    ]


@pytest.mark.long
def test_a_run_goes_through_every_task_and_moves_the_pointers(start: Start, tmp_path: Path) -> None:
    code, out, err = finish(start(flags=("--channel=demo",)))
    assert code == 0, err
    assert sorted(tasks_of(out)) == ["collect", "count", "resolve", "show"]
    assert "collect  committed" in err, "the stages' own log comes through"
    assert "progress of collect\n" in out, "their stdout too"
    store = FileStore(tmp_path / "runs/demo")
    assert {p.stem for p in store.root.glob("pointers/demo/*.json")} == {"collect", "count", "show"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lines.txt", "runs"], "nothing lies about"


@pytest.mark.process
def test_a_second_run_finds_every_key_committed_and_a_changed_option_reruns_what_follows(
    start: Start,
) -> None:
    finish(start())
    code, _, err = finish(start())
    assert code == 0 and err.count("is committed already") == 3 and "making" not in err
    _, _, err = finish(start("count_factor=2"))
    assert [line.split()[1] for line in err.splitlines() if " making " in line] == ["count", "show"]


def test_every_option_arrives_at_its_stage(start: Start, tmp_path: Path) -> None:
    code, _, err = finish(
        start(
            "count_factor=3",
            "options=collect.limit=1",
            "collect.threads=2",
            "count_scale=1e-7",
            flags=("--channel=mine",),
        )
    )
    assert code == 0, err
    store = FileStore(tmp_path / "runs/demo")
    counted = read_pointer(store, "mine", "count")
    assert counted is not None
    manifest = json.loads(store.read(counted.manifest_uri)[0])
    assert manifest["options"] == {"factor": 3, "pause": False, "scale": 1e-7, "unit": "characters"}
    assert manifest["counts"] == {"count": 7 * 3}, "one line of seven characters, three times"


@pytest.mark.process
def test_a_champion_is_resolved_once_and_pinned_for_the_task_that_shows_it(
    start: Start, tmp_path: Path
) -> None:
    finish(start())
    store = FileStore(tmp_path / "runs/demo")

    def build(attempt: Attempt) -> Result:
        attempt.write("count.txt", "5")
        return Result(counts={"count": 5})

    model = commit_once(store, Recipe(stage="train", revision=1, semantic={}, inputs={}), build)
    assert model is not None
    move_pointer(store, "dev", "champion", model.reference)
    code, _, err = finish(start("count_factor=2"))
    assert code == 0 and "champion of channel dev: train/" in err
    shown = read_pointer(store, "dev", "show")
    assert shown is not None
    inputs = json.loads(store.read(shown.manifest_uri)[0])["inputs"]
    assert inputs["before"]["key"] == model.manifest.key


def test_what_follows_a_paused_stage_ends_well_and_makes_nothing(start: Start, tmp_path: Path) -> None:
    code, out, err = finish(start("count_pause=true"))
    assert code == 0, err
    assert sorted(tasks_of(out)) == ["collect", "count", "resolve", "show"]
    assert re.search(r"^count/\w+ is paused at step 3 of 9 \(--max-seconds 1\); run the same", out, re.M)
    assert "show     nothing to do: count/" in err
    store = FileStore(tmp_path / "runs/demo")
    assert {p.stem for p in store.root.glob("pointers/dev/*.json")} == {"collect"}


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        (["collect_sources=absent.txt"], 65, "absent.txt: no such file"),
        (["collect.limits=3"], 64, "options of collect: unknown option 'limits'"),
        (["collect.sleep_seconds=3"], 64, "collect.sleep_seconds is the form's field collect_sleep_seconds"),
    ],
)
def test_a_failed_task_ends_the_run_with_its_exit_code_at_once_and_without_retries(
    start: Start, settings: list[str], code: int, words: str
) -> None:
    started = time.monotonic()
    got, out, err = finish(start(*settings))
    assert got == code and words in err and f"exit code {code}" in err
    assert "run the same command again" not in err, "the same options and data fail again"
    assert "count" not in out and time.monotonic() - started < 30, "the first retry would come after 60 s"
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            ["count_factr=3"],
            "tiny.yaml has no such field; did you mean count_factor?; it has collect_sleep_seconds, ",
        ),
        (["count_factor=many"], "--set count_factor=many: expected a whole number"),
        (["count_factor"], "expected NAME=VALUE"),
        (["count_factor=1", "count_factor=2"], "given twice"),
        (["count_unit=words"], "expected one of characters, bytes"),
        (["count_pause=maybe"], "expected true or false"),
        (["store=elsewhere"], "an option of its own for it: --store"),
        (["collect_sources=" + "x" * 9000], "bytes in all, at most 8000"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_runs(
    tiny_yaml: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = [f"--set={setting}" for setting in settings]
    assert main([f"--pipeline={tiny_yaml}", *flags]) == 64
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "a: 1", "- x", "[", "\x00"])
def test_what_is_no_compiled_pipeline_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.yaml").write_text(text)
    for name in ("odd.yaml", "absent.yaml", "."):
        assert main([f"--pipeline={name}"]) == 64
        said = capsys.readouterr().err
        assert f"--pipeline {name}" in said and "Traceback" not in said


def wait_for(path: Path) -> str:
    for _ in range(1500):
        if path.is_file() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path} never came")


def wait_for_end(*pids: str) -> None:
    end = time.monotonic() + 20
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end, f"left behind: {[p for p in pids if is_alive(p)]}"
        time.sleep(0.02)


@pytest.mark.process
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_the_runner_stops_the_stage_orderly_and_leaves_no_process(
    start: Start, tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    process = start("collect_sleep_seconds=300", TINY_CHILD=str(tmp_path / "pids"))
    pids = wait_for(tmp_path / "pids").split()
    process.send_signal(signum)
    got, _, err = finish(process, 20)
    assert got == code and f"stopped by {signum.name}" in err and "Traceback" not in err
    wait_for_end(*pids)
    lease = next((tmp_path / "runs/demo/runs/collect").glob("*/LEASE.json"))
    assert json.loads(lease.read_text())["expires_at"] == 0, "the stage gave its lease back"
    assert finish(start())[0] == 0


@pytest.mark.long
def test_kill_9_of_the_runner_leaves_no_stage_behind(start: Start, tmp_path: Path) -> None:
    process = start("collect_sleep_seconds=300", TINY_CHILD=str(tmp_path / "pids"))
    child, stage = wait_for(tmp_path / "pids").split()
    process.kill()
    process.wait()
    wait_for_end(stage)
    os.kill(int(child), signal.SIGKILL)  # the tiny stage does not stop its worker; `train` does
    assert finish(start())[0] == 0


def test_kill_9_of_a_stage_fails_the_run_and_its_worker_is_not_left_behind(
    start: Start, tmp_path: Path
) -> None:
    process = start("collect_sleep_seconds=300", TINY_CHILD=str(tmp_path / "pids"))
    child, stage = wait_for(tmp_path / "pids").split()
    os.kill(int(stage), signal.SIGKILL)
    code, _, err = finish(process, 20)
    assert code == 128 + signal.SIGKILL and "task collect failed" in err
    assert "run the same command again" in err
    wait_for_end(child)


def test_a_kfp_that_runs_nothing_through_us_is_told_by_name(
    tiny_yaml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        local_runner.components, "load_component_from_file", lambda path: lambda **values: None
    )
    with pytest.raises(EnvironmentFault, match="SubprocessTaskHandler has changed; install the kfp pinned"):
        run_pipeline(tiny_yaml, {}, tmp_path)


def test_a_task_is_told_nothing_that_the_run_was_not_told() -> None:
    assert store_flags(PipelineRunOptions()) == []
    assert store_flags(PipelineRunOptions(store="s3://a/b", scratch_gib=7)) == ["--scratch-gib=7"]


@pytest.mark.long
def test_a_run_on_a_server_that_only_an_option_names_goes_to_its_end(
    start: Start, tmp_path: Path, s3_place: str, s3_server: s3.S3Server
) -> None:
    flags = (f"--store=s3://{s3_place}/run", f"--endpoint={s3_server.endpoint}", "--scratch=scratch")
    code, _, err = finish(start(flags=flags, **{**s3_server.environment(), "AWS_ENDPOINT_URL": ""}))
    assert code == 0, err
    assert (tmp_path / "scratch").is_dir()


def test_an_endpoint_that_an_options_file_names_as_well_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flags = ["--endpoint=http://127.0.0.1:9", "--set", "train.endpoint=http://127.0.0.1:8"]
    assert main([f"--store={tmp_path / 'store'}", "--set=data_sources=x.jsonl", *flags]) == 64
    assert "options names --endpoint, which the pipeline itself sets" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_local_task_does_not_wait_for_hours_as_a_pod_does_and_knows_no_ray_of_a_cluster() -> None:
    found = "".join(f"os.environ.get('{name}', '0')+" for name in ("YANMO_WAIT_SECONDS", *RAY_VARIABLES))
    says = f"import os, sys; sys.exit({found}os.environ['OTHER'] != '0000x')"
    variables = {**IN_PODS, **RAY_VARIABLES, "OTHER": "x"}
    assert ProcessHandler("data", ["python3", "-c", says], "", None, variables).run().value
