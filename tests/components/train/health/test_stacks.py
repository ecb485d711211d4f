"""Stacks of all ranks by a signal, a window of the profiler, FLOPs by module: and not a weight moves."""

from __future__ import annotations

import faulthandler
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from yanmo.common.command_end import stacks_on_request
from yanmo.options.fields import flag
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.health.stacks import Requests, log_stacks, stacks_path
from yanmo.train.health.watchdog import STARTING, doings

RANK = """
import sys, time
from pathlib import Path
from yanmo.train.health.stacks import answer_requests
from yanmo.train.health.watchdog import Watchdog
folder, rank = Path(sys.argv[1]), int(sys.argv[2])
answer_requests(folder, rank)
watchdog = Watchdog(folder, rank, 0, print)
watchdog.start()
def deep_inside():
    print("ready", flush=True)
    time.sleep(600)
deep_inside()
"""


@pytest.fixture
def two_ranks(tmp_path: Path):
    """Their folder and processes."""
    started = [
        subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path), str(rank)], stdout=subprocess.PIPE)
        for rank in (0, 1)
    ]
    assert all(process.stdout.readline() == b"ready\n" for process in started)
    yield tmp_path, started
    for process in started:
        process.kill()
        process.wait()


def test_each_rank_answers_under_its_number_and_a_stopped_one_is_said_to_be(two_ranks, caplog) -> None:
    caplog.set_level("INFO")
    folder, processes = two_ranks
    log_stacks(folder, 60)
    for rank in (0, 1):
        (text,) = [one for one in caplog.messages if one.startswith(f"stacks of rank {rank}, in starting:")]
        assert "deep_inside" in text and "watchdog.py" in text, "all of its threads"
    caplog.clear()
    processes[1].send_signal(signal.SIGSTOP)
    log_stacks(folder)
    first, second = caplog.messages
    assert first.startswith("stacks of rank 0") and first.count("deep_inside") == 1, "of this time alone"
    assert second == "rank 1, in starting, shows no stacks: it is stopped, or gone"
    processes[1].send_signal(signal.SIGCONT)
    assert all(process.poll() is None for process in processes)


def test_a_request_is_served_once_and_a_late_one_writes_this_process_s_own(tmp_path, caplog, capfd) -> None:
    caplog.set_level("INFO")
    before = signal.getsignal(signal.SIGUSR1)
    try:
        stacks_on_request()  # as at the start of a stage
        with Requests().heard() as requests:
            requests.serve(tmp_path)
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
            requests.serve(tmp_path)
            requests.serve(tmp_path)
        assert "most recent call first" not in capfd.readouterr().err
        os.kill(os.getpid(), signal.SIGUSR1)
        assert "most recent call first" in capfd.readouterr().err
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, before)
    assert caplog.messages == ["stacks: no rank has begun yet"]


def test_before_any_rank_has_begun_that_is_said(tmp_path, caplog) -> None:
    caplog.set_level("INFO")
    log_stacks(tmp_path)
    assert caplog.messages == ["stacks: no rank has begun yet"]
    assert stacks_path(tmp_path, 1).name == "stacks-rank-00001"


def model_of(store: Path) -> Output:
    opened = open_store(str(store))
    return open_reference(opened, read_pointer(opened, "dev", "train"))


@pytest.mark.process
def test_stacks_profile_and_flops_of_a_training_move_no_weight(store, tiny, tmp_path) -> None:
    plain = Path(shutil.copytree(store, tmp_path / "plain"))
    options = {**tiny, "ranks": 2, "steps": 40}
    watched = {"profile": 2, "profile_from": 5, "flops": "true"}
    models = []
    for place, more in ((store, watched), (plain, {})):
        flags = [f"{flag(name)}={value}" for name, value in (options | more).items()]
        command = [sys.executable, "-m", "yanmo.train", f"--store={place}", "--metrics-port=-1", *flags]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        if more:
            asked = ask_while_it_trains(place, process)
        log = process.communicate(timeout=500)[1]
        assert process.returncode == 0, log
        models.append(model_of(place))
        if more:
            assert asked and all(f"stacks of rank {rank}, in " in log for rank in (0, 1)), log
            assert "in train_rank" in log and "profiled 2 steps" in log and "FLOPs per token" in log
    first, second = models
    assert first.path("model.safetensors").read_bytes() == second.path("model.safetensors").read_bytes()
    assert first.content_digest == second.content_digest and first.manifest.key == second.manifest.key
    with gzip.open(first.path("trace.json.gz")) as file:
        assert json.load(file)["traceEvents"]
    assert json.loads(first.path("flops.json").read_text())["modules"]["lm_head"] > 0
    records = {entry.path for entry in first.entries() if entry.role == "record"}
    assert {"trace.json.gz", "flops.json"} <= records


def ask_while_it_trains(store: Path, process: subprocess.Popen[str]) -> bool:
    """Ask once both ranks say what they do: they train, or import what they need for it."""
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        for job in store.glob("runs/train/*/job.json"):
            said = doings(job.parent)
            if len(said) == 2 and STARTING not in said.values():
                process.send_signal(signal.SIGUSR1)
                return True
        time.sleep(0.05)
    return False
