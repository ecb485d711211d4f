"""`yanmo watch` beside a real training: to its end in a terminal, of one that stands still, afterwards."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(store: Path, tiny: dict[str, object]) -> Iterator[Start]:
    """Starts trainings; what is left of them is killed after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def one(**more: object) -> subprocess.Popen[bytes]:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**tiny, **more}.items()]
        command = [sys.executable, "-m", "yanmo.train", f"--store={store}", "--metrics-port=-1", *flags]
        started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True))
        return started[-1]

    yield one
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def watched(store: Path, *flags: str) -> str:
    """What it prints where stdout is no terminal."""
    command = [sys.executable, "-m", "yanmo.cli", "watch", f"--store={store}", *flags]
    ended = subprocess.run(command, capture_output=True, text=True)
    return ended.stdout if ended.returncode == 0 else f"{ended.returncode}: {ended.stderr}"


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 500
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.process
def test_a_terminal_follows_a_training_to_its_end(store: Path, start: Start) -> None:
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "yanmo.cli", "watch", f"--store={store}", "--every=0.2"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    watching = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    training, seen = None, b""
    try:
        while chunk := os.read(master, 65536):
            seen += chunk
            if training is None and b"no training yet" in seen:
                training = start(steps=300)
    except OSError:  # Linux says so where the other end is closed
        pass
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode("utf-8", "replace"))
    assert watching.wait() == 0, text[-2000:]
    assert training is not None and re.search(r"at work on \S+", text), text[-2000:]
    assert text.rstrip().rfind("done") > text.rfind("at work on"), text[-2000:]
    assert "step 300 of 300 (100 %)" in text
    training.wait()


def test_one_that_is_stopped_stands_still_and_one_that_was_killed_is_left(store: Path, start: Start) -> None:
    training = start(steps=100_000, checkpoint_seconds=1)
    metrics = lambda: list(store.glob("runs/train/*/metrics.jsonl"))  # noqa: E731
    until(lambda: bool(metrics()) and metrics()[0].stat().st_size > 2000)
    key = metrics()[0].parent.name
    assert f"train/{key[:12]}  at work on " in watched(store)
    ranks = metrics()[0].parent / "heartbeats"
    pids = [int(path.read_text()) for path in ranks.glob("rank-*") if path.read_text().strip()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    old = time.time() - 100
    time.sleep(2)  # what it was writing is written
    for path in (*ranks.glob("rank-*"), metrics()[0]):
        os.utime(path, (old, old))  # as if it had stood still for so long
    still = watched(store, key[:12])
    for said in ("stands still: no line for ", "rank 0 has shown no sign of life for "):
        (minutes,) = re.findall(rf"{said}(\d+) min", still)
        assert 1 <= int(minutes) <= (time.time() - old) / 60, still
    os.killpg(training.pid, signal.SIGKILL)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    training.wait()
    left = watched(store, f"train/{key[:12]}")
    assert "nobody works on it; the same command goes on" in left and "stands still" not in left


def test_a_finished_one_is_shown_by_key_and_by_pointer(trained_store: Path) -> None:
    last = watched(trained_store)
    assert re.match(r"train/[0-9a-f]{12}  done\nstep 8 of 8 \(100 %\)", last), last
    assert watched(trained_store, last[:18]) == watched(trained_store, "dev/train") == last


def test_the_only_channel_with_a_training_need_not_be_named(trained_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(trained_store, tmp_path / "store"))
    (store / "pointers/dev").rename(store / "pointers/demo")
    assert watched(store) == watched(store, "--channel=demo") and " done\n" in watched(store)
    refused = watched(store, "--channel=dev")
    assert refused.startswith("65: ") and "; channels that have one: demo. Start" in refused
    (store / "pointers/other").mkdir()
    shutil.copy(store / "pointers/demo/train.json", store / "pointers/other/train.json")
    assert "; channels that have one: demo, other. Start" in watched(store)


def test_what_is_no_training_is_refused(store: Path) -> None:
    assert watched(store).startswith("65: ") and "no training is at work" in watched(store)
    assert "names tokenize/" in watched(store, "dev/tokenize")
    assert watched(store, "train/0123456789ab").startswith("65: ")
    assert not (store / "runs/train").exists()
