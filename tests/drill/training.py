"""A tiny training on the CPU with two ranks, as a process of its own."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType

from drill.watchers import free_port, get

_TESTS = Path(__file__).parents[1]
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
        self._folder = folder
        self.port = free_port()
        values = {**tiny_cache().TINY, "ranks": 2, "steps": 1_000_000, "valid_every": 0, **options}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
        self._command = [
            *(sys.executable, "-m", "yanmo.train", f"--store={store}", f"--metrics-port={self.port}"),
            *("--metrics-wait-seconds=20", f"--scratch={folder / 'scratch'}", *flags),
        ]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> str:
        """Where it is scraped."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it says."""
        return self._folder / "training.log"

    def __enter__(self) -> Training:
        self._folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait_until_it_trains()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _wait_until_it_trains(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while self.figure("yanmo_train_step") < 5:
            assert self._process
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the training did not begin to train; look at {self.log}")
            time.sleep(0.2)

    def figure(self, name: str) -> float:
        """One of its metrics, without labels; -1 where it does not say it."""
        try:
            found = re.search(rf"^{name} (\S+)$", get(f"http://{self.target}/metrics"), re.M)
        except OSError:
            return -1.0
        return float(found[1]) if found else -1.0

    def rank(self, number: int) -> int:
        """The process of a rank."""
        end = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < end:
            for pid in self._ranks(f"rank-{number:05d}"):
                return pid
            time.sleep(0.1)
        raise RuntimeError(f"rank {number} has left no heartbeat below {self._folder.parent}")

    def _ranks(self, name: str = "rank-*") -> list[int]:
        found = []
        for path in self._folder.parent.rglob(f"heartbeats/{name}"):
            with contextlib.suppress(OSError, ValueError):
                found.append(int(path.read_text()))
        return found

    def _end(self) -> None:
        """Stop it and all its ranks, also those that are frozen."""
        process = self._process
        if process is None:
            return
        for pid in self._ranks():
            _kill(pid)
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"yanmo" in command:  # it is still ours
            os.kill(pid, signal.SIGKILL)
