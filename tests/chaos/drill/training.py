"""A tiny training on the CPU with two ranks, as a process of its own."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType

from chaos.drill.watchers import free_port, get
from chaos.start import Run, start

_TESTS = Path(__file__).parents[2]
_START_SECONDS, _STOP_SECONDS = 600.0, 60.0


@functools.cache
def module_of(path: str) -> ModuleType:
    """A module of the tests, by its file (pytest's importlib mode has no packages there)."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, _TESTS / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tiny_cache() -> ModuleType:
    """What makes a small token cache of real texts."""
    return module_of("components/train/conftest.py")


class Training:
    """`yanmo train`, from `with` to its end."""

    def __init__(self, folder: Path, store: str, environment: Mapping[str, str], **options: object) -> None:
        self._folder, self._environment = folder, environment
        self.target = f"127.0.0.1:{(port := free_port())}"
        """Where it is scraped."""
        values = {**tiny_cache().TINY, "ranks": 2, "steps": 1_000_000, "valid_every": 0, **options}
        values |= {
            "store": store,
            "metrics_port": port,
            "metrics_wait_seconds": 20,
            "scratch": folder / "scratch",
        }
        self._flags = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]

    def __enter__(self) -> Training:
        self._folder.mkdir(parents=True)
        self._run = start("yanmo.train", self._flags, None, self._folder, self._environment)
        try:
            self._wait_until_it_trains(self._run)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _wait_until_it_trains(self, run: Run) -> None:
        end = time.monotonic() + _START_SECONDS
        while self.step() < 5:
            if run.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the training did not begin to train: {run.text[-1500:]}")
            time.sleep(0.2)

    def step(self) -> float:
        """The step that its metrics tell; -1 where they do not."""
        try:
            found = re.search(r"^yanmo_train_step (\S+)$", get(f"http://{self.target}/metrics"), re.M)
        except OSError:
            return -1.0
        return float(found[1]) if found else -1.0

    def rank(self, number: int) -> int:
        """The process of a rank."""
        end = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < end:
            for path in self._folder.parent.rglob(f"heartbeats/rank-{number:05d}"):
                with contextlib.suppress(OSError, ValueError):
                    return int(path.read_text())
            time.sleep(0.1)
        raise RuntimeError(f"rank {number} has left no heartbeat below {self._folder.parent}")

    def _end(self) -> None:
        """Stop it and all its ranks, also those that are frozen."""
        for pid in set(self._run.pids()) - {self._run.process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._run.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._run.process.wait(_STOP_SECONDS)
        self._run.kill_all()
        self._run.process.wait()
