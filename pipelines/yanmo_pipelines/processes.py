"""Stages as processes of this machine: signals are passed on to them, and nothing of them is left behind.

What is read of a task that ran needs no kfp, which runs it (local_runner.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from yanmo.common.answers import stdout_for_children
from yanmo.common.child_processes import end_with_parent
from yanmo.stage.kfp_outputs import ExecutorOutputs


class Stopped(Exception):
    """A signal came; it was passed on to what was running, which has ended in its own orderly way."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class Ended(NamedTuple):
    """How a process ended."""

    exit_code: int
    """Negative: killed by that signal."""
    cpu_seconds: float
    """Its own and those of the processes that it waited for."""


class Processes:
    """Runs commands; the first signal ends the running ones in their orderly way, another one at once."""

    def __init__(self) -> None:
        self._alive: list[subprocess.Popen[bytes]] = []
        self._stopped_by = 0

    @contextlib.contextmanager
    def hear_signals(self) -> Iterator[None]:
        """Inside, SIGTERM and SIGINT end what runs, and `run` raises `Stopped`."""
        old = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for signum, handler in old.items():
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        again, self._stopped_by = bool(self._stopped_by), signum
        for process in self._alive:
            _signal_group(process, signal.SIGKILL if again else signal.SIGTERM)

    def check(self) -> None:
        """Raise `Stopped` where a signal came."""
        if self._stopped_by:
            raise Stopped(self._stopped_by)

    def run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Ended:
        """Run `command` to its end, in a process group of its own, with our stdout, and leave none of it.

        Ctrl-C in a terminal then reaches only us, and a stage hears of it once, as SIGTERM.

        Raises:
            Stopped: a signal came, before or meanwhile.
        """
        self.check()
        end_with_us = functools.partial(end_with_parent, os.getpid(), signal.SIGTERM)  # also after kill -9
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout_for_children(),
            start_new_session=True,
            preexec_fn=end_with_us if sys.platform == "linux" else None,
        )
        self._alive.append(process)
        if self._stopped_by:  # the signal came before the process was listed
            _signal_group(process, signal.SIGTERM)
        try:
            ended = _wait(process)
        finally:
            self._alive.remove(process)
            _signal_group(process, signal.SIGKILL)  # what a killed stage left behind
        self.check()
        return ended


def _wait(process: subprocess.Popen[bytes]) -> Ended:
    """`Popen.wait` does not tell the CPU time."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(process.returncode, usage.ru_utime + usage.ru_stime)


def _signal_group(process: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)


def value_of(command: list[str], name: str) -> str:
    """Return the value of a flag in a command line; empty without it."""
    return next((a.partition("=")[2] for a in command if a.startswith(f"{name}=")), "")


@dataclass
class TaskRun:
    """One task as it ran."""

    name: str
    command: list[str]
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of its process and of those that it started and waited for."""
    exit_code: int | None = None
    outputs: ExecutorOutputs | None = None

    @property
    def run_id(self) -> str:
        """The id that KFP gave this run."""
        return value_of(self.command, "--run-id")

    def artifact(self, name: str) -> str:
        """Return the body of its output artifact `name`: a reference, or `none`."""
        if not self.outputs or name not in self.outputs.artifacts:
            return ""
        path = Path(self.outputs.artifacts[name]["uri"])
        return path.read_text(encoding="utf-8") if path.is_file() else ""


class TaskFailed(RuntimeError):
    """A task's process ended with an exit code other than 0."""

    def __init__(self, task: TaskRun) -> None:
        super().__init__(f"task {task.name} failed with exit code {task.exit_code}")
        self.task = task
