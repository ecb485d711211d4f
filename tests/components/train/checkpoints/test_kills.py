"""A training that dies at any of its writes, again and again, ends as an undisturbed one does.

In one process: a kill is an exception at a write, after which no further write of that start happens. Kills
of real processes are benchmarks/resume.py's; here are early stopping, the plateau and rewinds.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
from pathlib import Path

import pytest

from yanmo.store.opening import open_store
from yanmo.store.pointers import read_pointer
from yanmo.train import job
from yanmo.train.checkpoints import checkpoint
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob
from yanmo.train.metrics.metrics_log import MetricsLog

pytestmark = [pytest.mark.usefixtures("one_rank"), pytest.mark.fault]

CASES = {
    "early stopping": {"valid_every": 3, "early_stopping": 2, "early_min_delta": 0.06, "checkpoint_steps": 2},
    "plateau": {"schedule": "plateau", "valid_every": 2, "plateau_validations": 1, "early_min_delta": 0.1},
    "rewinds": {"checkpoint_steps": 2, "valid_every": 4, "early_stopping": 50, "log_every": 5},
}
_CLOCK = {
    "cpu_seconds",
    "seconds",
    "seconds_left",
    "phase_seconds",
    "tokens_per_second",
    "samples_per_second",
    "flops_per_second",
}
_CLOCK |= {"memory_bytes", "memory_peak_bytes"}


class Kill(BaseException):
    """Not an Exception: nothing may catch it."""


class Fuse:
    """Lets so many writes pass, and none after them."""

    left = 10**9

    def around(self, action):
        def call(*args, **kwargs):
            self._burn()
            result = action(*args, **kwargs)
            self._burn()
            return result

        return call

    def _burn(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Kill


@pytest.fixture
def fuse(monkeypatch) -> Fuse:
    made = Fuse()
    for name in ("write_rank", "commit", "set_pointer", "prune", "_entry"):
        monkeypatch.setattr(checkpoint, name, made.around(getattr(checkpoint, name)))
    monkeypatch.setattr(MetricsLog, "_write", made.around(MetricsLog._write))
    monkeypatch.setattr(threading, "excepthook", lambda what: None)  # of the writer's thread, killed as well
    return made


def outcome(folder: Path) -> tuple[list[dict], bytes]:
    text = (folder / job.METRICS).read_text(encoding="utf-8")
    lines = [{k: v for k, v in json.loads(x).items() if k not in _CLOCK} for x in text.splitlines()]
    return lines, (folder / job.EXPORT / "model.safetensors").read_bytes()


def wait_for_writers() -> None:
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join()


@pytest.mark.parametrize("case", CASES)
def test_kills_at_writes_change_no_line_and_no_weight(case, store, tmp_path, tiny, fuse, faults, monkeypatch):
    from yanmo.train import worker

    values = {
        **tiny,
        "backend": "torch",
        "steps": 30,
        "start": "random",
        "checkpoint_steps": 3,
        **CASES[case],
    }
    config = TrainConfig(**{**values, "store": str(store)})
    reference = read_pointer(open_store(str(store)), "dev", "tokenize")
    if case == "rewinds":
        bad = [(step - 1) * 8 + row for step in (8, 9, 10, 15, 21, 22, 23) for row in range(8)]
        faults.poison(faults.rows_of(faults.samples_of(store, values), bad), monkeypatch.setattr)

    def train(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        worker.train_rank(WorkerJob(config, str(store), reference, None, folder), 0)
        wait_for_writers()

    train(tmp_path / "whole")
    expected, dice, kills = outcome(tmp_path / "whole"), random.Random(5), 0
    assert case != "rewinds" or any(line.get("event") == "rewind" for line in expected[0])
    for _ in range(2):
        folder = tmp_path / "cut"
        shutil.rmtree(folder, ignore_errors=True)
        while not (folder / job.EXPORT).exists():
            fuse.left = dice.randrange(1, 60) if kills % 9 < 8 else 10**9
            try:
                train(folder)
            except Kill:
                kills += 1
            fuse.left = -1
            wait_for_writers()
        assert outcome(folder) == expected
        kills += 1
    assert kills > 4
