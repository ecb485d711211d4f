"""/metrics of a training whose rank stands still: a real one on the CPU, stopped by SIGSTOP."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from yanmo.options.fields import flag
from yanmo.train.metrics.declared import METRICS

pytestmark = pytest.mark.process
open_directly = build_opener(ProxyHandler({})).open
SAMPLE = re.compile(r"^yanmo_(\w+?)(?:\{(.*)\})? (\S+)$", re.M)


def scraped(port: int) -> dict[str, float]:
    """Name and labels -> value; {} where nobody answers yet."""
    try:
        with open_directly(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            found = SAMPLE.findall(answer.read().decode())
    except OSError:
        return {}
    return {name + (f"{{{labels}}}" if labels else ""): float(value) for name, labels, value in found}


def wait_for(port: int, what: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """The first answer of which `what` is true."""
    end = time.monotonic() + 500
    while not ((found := scraped(port)) and what(found)):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)
    return found


def moves(found: dict[str, float]) -> bool:
    """Whether every rank trains at this moment; a busy machine stands still for seconds."""
    counted = found.get('train_memory_bytes{rank="0"}') and found.get('train_memory_bytes{rank="1"}')
    return bool(counted and found.get("train_loss") and found["train_tokens_per_second"] > 0)


def second_rank(store: Path) -> int:
    """Its process id."""
    (beat,) = store.glob("runs/train/*/heartbeats/rank-00001")
    return int(beat.read_text())


def test_while_a_rank_stands_still_rates_say_0_figures_are_gone_and_ages_grow(store, tiny):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {**tiny, "steps": 100_000, "ranks": 2, "hang_seconds": 0, "log_every": 2, "metrics_port": port}
    flags = [f"{flag(name)}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "yanmo.train", f"--store={store}", *flags]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        before = wait_for(port, moves)
        assert before["train_tokens_per_second"] > 0
        assert before["train_steps"] == 100_000 and before["train_ranks"] == 2
        assert before["train_loss"] > 0 and before['stage_state{state="working"}'] == 1
        for rank in "01":  # of every rank, not of the first alone
            for name in ("step_seconds_total", "data_wait_seconds_total", "memory_bytes"):
                assert before[f'train_{name}{{rank="{rank}"}}'] > 0, (name, rank)
        victim = second_rank(store)
        os.kill(victim, signal.SIGSTOP)
        frozen = wait_for(port, lambda found: "train_loss" not in found)
        assert {frozen[f"train_{m.name}"] for m in METRICS if m.still == "zero" and m.name != "mfu"} == {0.0}
        shown = {name.partition("{")[0] for name in frozen}
        assert not shown & {f"train_{m.name}" for m in METRICS if m.still == "gone"}
        assert frozen["train_last_step_age_seconds"] > 5
        assert max(frozen[f'train_heartbeat_age_seconds{{rank="{rank}"}}'] for rank in "01") > 15
        assert frozen["train_step"] >= before["train_step"]
        ages = ("train_last_step_age_seconds", 'train_heartbeat_age_seconds{rank="1"}')
        later = wait_for(port, lambda found: all(found[age] > frozen[age] + 1 for age in ages))
        assert later["train_step"] == frozen["train_step"]
        os.kill(victim, signal.SIGCONT)
        again = wait_for(port, moves)
        assert again["train_last_step_age_seconds"] < later["train_last_step_age_seconds"]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
