"""A process that makes no progress ends by itself, and a frozen one is seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from yanmo.train.health.watchdog import Heartbeats, Silence, forget_heartbeats, heartbeat_path

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


STEPS = """
import sys, time
from pathlib import Path
from yanmo.train.health.watchdog import Watchdog
dog = Watchdog(Path(sys.argv[1]), 0, 600.0, lambda text: print(text, flush=True), step_limit=1.5)
dog.start()
step = "training step"
for doing, seconds in ((f"{step} 5", 4), (f"{step} 6", 0.1), ("validation", 4), (f"{step} 7", 60)):
    dog.beat(doing)
    print(doing, flush=True)
    time.sleep(seconds)
"""


def test_a_training_step_has_a_limit_of_its_own_but_for_the_first_which_may_compile(tmp_path):
    command = [sys.executable, "-c", STEPS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 75
    *did, last, said = done.stdout.splitlines()
    assert did == ["training step 5", "training step 6", "validation"] and last == "training step 7"
    assert "while training step 7 (by --collective-seconds 1.5)" in said


def test_a_frozen_rank_falls_silent(tmp_path):
    now = [0.0]
    process, heartbeats = start(tmp_path, 600), Heartbeats(tmp_path, clock=lambda: now[0])
    try:
        assert process.stdout.readline() == "ready\n"
        assert heartbeat_path(tmp_path, 3).read_text() == str(process.pid)
        process.send_signal(signal.SIGSTOP)
        assert heartbeats.silent(3) == []
        for now[0] in (2.0, 4.0):
            found = heartbeats.silent(3)
        assert found == [3]
        os.utime(heartbeat_path(tmp_path, 3), (1, 1))  # any other time is a sign of life
        assert heartbeats.silent(3) == []
    finally:
        process.kill()
        process.communicate()
    forget_heartbeats(tmp_path)
    assert heartbeats.silent(-1e9) == []


def test_a_clock_that_is_set_or_a_machine_that_slept_freezes_nobody(tmp_path):
    now = [0.0]
    heartbeats, path = Heartbeats(tmp_path, clock=lambda: now[0]), heartbeat_path(tmp_path, 0)
    path.parent.mkdir()
    path.touch()
    os.utime(path, (1e9, 1e9))  # by the wall clock, now, it is years old
    assert heartbeats.silent(60) == []
    now[0] += 8 * 3600.0  # this process slept too: no heartbeat could come
    assert heartbeats.silent(60) == []


def test_silence_is_counted_while_somebody_listens():
    now = [0.0]
    silence = Silence(clock=lambda: now[0])
    assert silence.look("a") == 0
    now[0] = 2.0
    assert silence.look("a") == 2.0
    now[0] = 1000.0
    assert silence.look("a") < 10
    assert silence.look("b") == 0


def test_a_limit_of_zero_ends_nothing(tmp_path):
    process = start(tmp_path, 0)
    assert process.stdout.readline() == "ready\n"
    time.sleep(2.5)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
