"""A process that makes no progress ends by itself, and a frozen one is seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from yanmo.train.health.watchdog import forget_heartbeats, heartbeat_path, silent_ranks

HANGING = """
import sys, time
from pathlib import Path
from yanmo.train.health.watchdog import Watchdog

def collective_that_never_ends():
    time.sleep(600)

dog = Watchdog(Path(sys.argv[1]), 3, float(sys.argv[2]), lambda text: print(text, flush=True))
dog.start()
dog.beat("backward")
print("ready", flush=True)
collective_that_never_ends()
"""


def start(folder, limit: float) -> subprocess.Popen:
    command = [sys.executable, "-c", HANGING, str(folder), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_hang_dumps_the_stacks_says_what_it_was_doing_and_exits_75(tmp_path):
    process = start(tmp_path, 1.5)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 75
    assert "while backward (--hang-seconds 1.5)" in out
    assert "collective_that_never_ends" in err


def test_a_frozen_rank_falls_silent(tmp_path):
    process = start(tmp_path, 600)
    try:
        assert process.stdout.readline() == "ready\n"
        assert heartbeat_path(tmp_path, 3).read_text() == str(process.pid)
        process.send_signal(signal.SIGSTOP)
        age = time.time() - heartbeat_path(tmp_path, 3).stat().st_mtime
        assert silent_ranks(tmp_path, 1e6) == []
        assert silent_ranks(tmp_path, 50, now=lambda: time.time() + age + 60) == [3]
    finally:
        process.kill()
        process.communicate()
    forget_heartbeats(tmp_path)
    assert silent_ranks(tmp_path, -1e9) == []


def test_a_limit_of_zero_ends_nothing(tmp_path):
    process = start(tmp_path, 0)
    assert process.stdout.readline() == "ready\n"
    time.sleep(2.5)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
