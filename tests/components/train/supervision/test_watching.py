"""The log of the workers is read to its end, whatever becomes of the disk, the terminal, or a grandchild."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from yanmo.train.config import TrainConfig
from yanmo.train.job import Place
from yanmo.train.supervision import ranks as watching
from yanmo.train.supervision.ranks import Frozen, Ranks, WorkersLog, start

TALK = """
import sys
from yanmo.train.job import Status
for n in range(4000):  # more than a pipe holds
    print(f"12:00:00 train line {n}", file=sys.stderr)
Status(0, "paused", step=5).send()
"""


def talking(code: str = TALK, *arguments: str) -> Ranks:
    return Ranks([sys.executable, "-c", code, *arguments], [os.environ])


def ended(group: Ranks) -> None:
    until = time.monotonic() + 60
    while not group.have_ended:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert not group.codes


def watch(process, message, folder, *, hang_seconds=0.0, silence_seconds=0.0, stopping=()):
    place = Place(0, 2, 1, "", 1, "", silence_seconds=silence_seconds) if silence_seconds else None
    watching.watch(process, message, folder, hang_seconds, place, list(stopping), lambda: None)


ORPHAN = """
import os, sys, time
from yanmo.common.child_processes import PARENT
from yanmo.train.supervision.ranks import Ranks
rank = "from yanmo.common.child_processes import end_with_parent; end_with_parent(); print('alive')"
parent = "1" if sys.argv[1] == "dead" else str(os.getpid())
group = Ranks([sys.executable, "-c", rank], [{**os.environ, PARENT: parent}])
said = group.stdout.read().decode().strip() or "ended"
while not group.have_ended:
    time.sleep(0.01)
print(said, group.codes)
"""


@pytest.mark.fault
@pytest.mark.parametrize(("parent", "end"), [("dead", "ended {0: -9}"), ("alive", "alive {}")])
def test_a_rank_whose_supervisor_died_before_it_could_ask_does_not_run_on(parent, end):
    command = [sys.executable, "-c", ORPHAN, parent]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout.strip().startswith(end), done.stderr


def test_workers_that_do_not_stop_when_asked_are_ended_and_that_is_logged(tmp_path):
    process = talking("import time; time.sleep(600)")
    result = WorkersLog(process, tmp_path / "workers.log")
    result.start()
    asked = [time.monotonic() - 200]
    with pytest.raises(Frozen, match=r"did not save within 120 s.*from the last checkpoint"):
        watch(process, result, tmp_path, stopping=asked)
    process.end()
    result.wait()


def test_workers_none_of_which_ever_begins_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "FROZEN_SECONDS", 1.0)
    process = talking("import time; print('no such disk', flush=True); time.sleep(600)")
    result = WorkersLog(process, tmp_path / "workers.log")
    result.start()
    with pytest.raises(Frozen, match=r"(?s)none of the workers has begun within .* s .*no such disk"):
        watch(process, result, tmp_path, hang_seconds=1.0)
    process.end()
    result.wait()


FROZEN = """
import os, signal, sys, time
from pathlib import Path
from yanmo.train.health.watchdog import Watchdog
dog = Watchdog(Path(sys.argv[1]), 0, 600.0, print)
dog.start()
dog.beat("loading a checkpoint")
time.sleep(2)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_stands_still_is_seen_whatever_it_did_and_however_long_that_may_take(tmp_path):
    process = talking(FROZEN, str(tmp_path))
    result = WorkersLog(process, tmp_path / "workers.log")
    result.start()
    with pytest.raises(Frozen, match=r"rank 0 stands still .* for 4 s \(by --collective-seconds\)"):
        watch(process, result, tmp_path, hang_seconds=600.0, silence_seconds=4.0)
    process.end()
    result.wait()


EXPORTING = """
import sys, time
from pathlib import Path
from yanmo.train.health.watchdog import Watchdog
from yanmo.train.job import Status
done, writing = (Watchdog(Path(sys.argv[1]), rank, 600.0, print) for rank in range(2))
done.start(), writing.start()
writing.beat("writing the model")
done.stop()
Status(0, "done", step=5).send()
time.sleep(6)
"""


def test_a_rank_that_has_ended_does_not_stand_still_while_another_writes_the_model(tmp_path):
    process = talking(EXPORTING, str(tmp_path))
    result = WorkersLog(process, tmp_path / "workers.log")
    result.start()
    watch(process, result, tmp_path, hang_seconds=600.0, silence_seconds=2.0)
    result.wait()
    assert not process.codes


class Gone(io.RawIOBase):
    """Where a terminal was, or the disk is full."""

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        raise OSError(32, "Broken pipe")


@pytest.mark.parametrize("what", ["terminal", "disk", "all is well"])
def test_the_workers_last_words_are_heard(what, tmp_path, monkeypatch):
    path = tmp_path / "workers.log"
    if what == "disk":
        path = tmp_path / "no such folder" / "workers.log"
    if what == "terminal":
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Gone())))
    process = talking()
    result = WorkersLog(process, path)
    result.start()
    ended(process)
    result.wait()
    assert [status.step for status in result.statuses] == [5]
    assert path.exists() == (what != "disk")
    monkeypatch.undo()


def test_a_grandchild_that_keeps_the_pipe_open_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "_LAST_WORDS_SECONDS", 1.0)
    process = talking(f"import subprocess; subprocess.Popen(['sleep', '60'])\n{TALK}")
    result = WorkersLog(process, tmp_path / "workers.log")
    result.start()
    ended(process)
    began = time.monotonic()
    result.wait()
    assert time.monotonic() - began < 30
    assert [status.step for status in result.statuses] == [5]


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_that_wait_soon_sleep_unless_a_person_says_otherwise(tmp_path, monkeypatch, given, spins):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    process = start(TrainConfig(threads=2), tmp_path / "none.json")
    try:
        while not (text := Path(f"/proc/{process.pids[0]}/environ").read_text()):
            time.sleep(0.01)  # it is still being made
    finally:
        process.end()
    found = dict(line.partition("=")[::2] for line in text.split("\0"))
    assert (found.get("GOMP_SPINCOUNT"), found["OMP_NUM_THREADS"]) == (spins, "2")
