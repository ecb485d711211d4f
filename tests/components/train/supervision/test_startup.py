"""A start that takes long says what it waits for, and what never came is not blamed on memory."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import NAMELESS, cannot_be_nameless

from yanmo.options.fields import flag
from yanmo.store.opening import open_store
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import STARTS, TRAINING, Watchdog, doings, forget_heartbeats
from yanmo.train.job import WorkerJob
from yanmo.train.supervision import startup, worker_group
from yanmo.train.supervision.ranks import Ranks
from yanmo.train.supervision.startup import Startup
from yanmo.train.supervision.worker_group import WorkersLog

WORKER = """
import sys, time
from pathlib import Path
from yanmo.train.health.watchdog import Watchdog
watchdog = Watchdog(Path(sys.argv[1]), 0, 0, lambda text: None)
watchdog.start()
for doing in ("importing torch", "joining the other ranks", "training step 1"):
    watchdog.beat(doing)
    time.sleep(1.5)
for step in range(2, 30):
    watchdog.beat(f"training step {step}")
    time.sleep(0.1)
"""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ranks_doing(folder: Path, **doing: str) -> None:
    forget_heartbeats(folder)
    for name, text in doing.items():
        Watchdog(folder, int(name[1:]), 0, lambda text: None)._write_doing(text)
        (folder / "heartbeats" / f"rank-{int(name[1:]):05d}").write_text("1")


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "heartbeats").mkdir()
    return tmp_path


def seconds_later(start: Startup, clock: Clock, seconds: int) -> float:
    nobody = 0.0
    for _ in range(seconds):
        clock.now += 1.0
        nobody = start.look()
    return nobody


def test_each_minute_without_a_step_is_logged_with_what_each_rank_does(folder, caplog):
    caplog.set_level(logging.INFO, "yanmo")
    clock = Clock()
    start = Startup(folder, 3, lambda: "no such name", clock)
    assert seconds_later(start, clock, 59) == 59 and not caplog.messages
    assert seconds_later(start, clock, 1) == 60
    assert caplog.messages == [
        "no step is done after 1 min 00 s: ranks 0, 1, 2: not started yet. "
        "Last line of the workers: no such name"
    ]
    ranks_doing(folder, r0="joining the other ranks", r1="importing torch")
    assert seconds_later(start, clock, 60) == 0
    assert caplog.messages[1:] == [
        "no step is done after 2 min 00 s: rank 0: joining the other ranks; rank 1: importing torch; "
        "rank 2: not started yet. Last line of the workers: no such name"
    ]
    ranks_doing(folder, r0=f"{TRAINING} 8", r1=f"{TRAINING} 8", r2=f"{TRAINING} 8")
    seconds_later(start, clock, 60)
    assert caplog.messages[2:] == ["no step is done after 3 min 00 s: ranks 0, 1, 2: training step 8"]
    ranks_doing(folder, r0=f"{TRAINING} 9", r1=f"{TRAINING} 8", r2=f"{TRAINING} 8")
    seconds_later(start, clock, 600)
    assert start.is_over and len(caplog.messages) == 3


DOINGS = st.lists(
    st.tuples(
        st.sampled_from(
            [*sorted(STARTS), f"{TRAINING} 4", f"{TRAINING} 5", "validation", "saving a checkpoint",
             "writing the model", "rewinding", "waiting for the checkpoint"]
        ),
        st.integers(1, 200),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(DOINGS)
def test_nothing_is_logged_of_a_first_step_once_a_step_is_done(tmp_path_factory, doings):
    """Over with what follows a step, also where the step itself was too short to be seen."""
    folder, clock, said = tmp_path_factory.mktemp("run"), Clock(), []
    (folder / "heartbeats").mkdir()
    start = Startup(folder, 1, lambda: "", clock)
    handler = logging.Handler()
    handler.emit = lambda record: said.append((clock.now, record.getMessage()))
    logger = logging.getLogger(startup.__name__)
    logger.addHandler(handler)
    level, logger.level = logger.level, logging.INFO
    done_at, spent, first = None, 0, ""
    for doing, seconds in doings:
        ranks_doing(folder, r0=doing)
        later = doing not in STARTS and not doing.startswith(TRAINING)
        if done_at is None and (later or (first and doing != first)):
            done_at = spent
        first = first or (doing if doing.startswith(TRAINING) else "")
        seconds_later(start, clock, seconds)
        spent += seconds
    logger.removeHandler(handler)
    logger.level = level
    end = spent if done_at is None else done_at
    assert [moment for moment, _ in said] == list(range(60, end + 1, 60))
    assert start.is_over == (done_at is not None)


def test_what_a_real_worker_does_before_its_first_step_is_known_as_its_start(store, tiny, tmp_path, one_rank):
    from yanmo.store.output import open_reference
    from yanmo.store.pointers import read_pointer
    from yanmo.train import worker

    opened = open_store(str(store))
    cache = open_reference(opened, read_pointer(opened, "dev", "tokenize"))
    options = TrainConfig(**tiny, backend="torch", start="random")
    said: list[str] = []
    worker.train_rank(WorkerJob(options, opened.uri, cache.reference, None, tmp_path), 0, said.append)
    first = next(number for number, doing in enumerate(said) if doing.startswith(TRAINING))
    assert first > 2 and set(said[:first]) <= STARTS
    assert not {doing for doing in said[first:] if doing in STARTS}


def test_a_machine_that_slept_does_not_count_as_a_start_that_takes_long(folder, caplog):
    caplog.set_level(logging.INFO, "yanmo")
    clock = Clock()
    start = Startup(folder, 1, lambda: "", clock)
    start.look()
    clock.now += 8 * 3600
    assert start.look() < 60 and not caplog.messages


def test_the_first_look_after_a_rank_was_started_finds_what_it_does(folder):
    (folder / "heartbeats" / "rank-00001").write_text("17")
    assert doings(folder) == {1: "starting"}, "the second file is not there yet"
    watchdog = Watchdog(folder, 0, 0, lambda text: None)
    watchdog.start()
    assert doings(folder) == {0: "starting", 1: "starting"}
    watchdog.stop()
    forget_heartbeats(folder)
    assert not list((folder / "heartbeats").iterdir())


def test_a_real_worker_that_starts_slowly_is_described_until_its_second_step(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(startup, "_SAY_SECONDS", 0.5)
    caplog.set_level(logging.INFO, "yanmo")
    process = Ranks([sys.executable, "-c", WORKER, str(tmp_path)], [os.environ])
    said = WorkersLog(process, tmp_path / "workers.log")
    said.start()
    worker_group.watch(
        process, said, tmp_path, ranks=1, hang_seconds=0, stopping=[], each_time=lambda: None
    )  # fmt: skip
    text = "\n".join(caplog.messages)
    assert "rank 0: importing torch" in text or "rank 0: joining the other ranks" in text
    assert "training step 1" in text and "training step 20" not in text


def test_workers_that_never_begin_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_group, "FROZEN_SECONDS", 0.5)
    code = "import time; print('nobody there', flush=True); time.sleep(600)"
    process = Ranks([sys.executable, "-c", code], [os.environ])
    said = WorkersLog(process, tmp_path / "workers.log")
    said.start()
    with pytest.raises(worker_group.Frozen, match=r"none of 2 workers has begun(.|\n)*nobody there"):
        worker_group.watch(
            process, said, tmp_path, ranks=2, hang_seconds=2.0, stopping=[], each_time=lambda: None
        )  # fmt: skip
    process.end()
    said.wait()


@pytest.mark.process
@pytest.mark.parametrize(("backend", "ranks"), [("deepspeed", 2), ("torch", 1)])
def test_a_host_name_that_does_not_resolve_is_no_hindrance(store, tiny, backend, ranks):
    """Two ranks meet over the loopback interface; a single one meets nobody."""
    reason = cannot_be_nameless()
    if reason:
        pytest.skip(reason)
    flags = [f"{flag(name)}={value}" for name, value in {**tiny, "ranks": ranks, "backend": backend}.items()]
    command = [sys.executable, "-m", "yanmo.train", f"--store={store}", *flags]
    env = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    process = subprocess.Popen([*NAMELESS, *command], stderr=subprocess.PIPE, text=True, env=env)
    try:
        # 9 s on an idle machine; without the loopback address it hung for 10 minutes.
        _, log = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, log
    assert "no-such-name" not in log
