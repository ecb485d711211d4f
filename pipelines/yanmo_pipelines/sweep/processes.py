"""Stages as processes of this machine, one at a time: their log is shown, and what they said last is kept."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import IO

from yanmo.common.answers import stdout_for_children
from yanmo.common.parent import end_with_parent

_LOOK_SECONDS = 0.1
_KEPT_BYTES = 16384


class Stopped(Exception):
    """A signal came; the running stage was told, and has ended in its own orderly way."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class Processes:
    """Runs commands; the first signal ends the running one in its orderly way, another one at once."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped_by = 0

    @contextlib.contextmanager
    def hear_signals(self) -> Iterator[None]:
        """Inside, SIGTERM and SIGINT end the running process, and `run` raises `Stopped`."""
        old = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for signum, handler in old.items():
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        again, self._stopped_by = bool(self._stopped_by), signum
        if self._running:
            _signal_group(self._running, signal.SIGKILL if again else signal.SIGTERM)

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Run a command to its end: its exit code (negative: killed by a signal) and the end of its log.

        Its stderr is a file, not a pipe: it can be written to after this process was killed as well.

        Raises:
            Stopped: a signal came, before or meanwhile.
        """
        if self._stopped_by:
            raise Stopped(self._stopped_by)
        end_with_us = functools.partial(end_with_parent, os.getpid(), signal.SIGTERM)  # also after kill -9
        with tempfile.TemporaryFile(buffering=0) as log, _shown(log):
            self._running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout_for_children(),
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_us if sys.platform == "linux" else None,
            )
            process = self._running
            if self._stopped_by:  # it came before the process was listed
                _signal_group(process, signal.SIGTERM)
            try:
                code = process.wait()
            finally:
                self._running = None
                _signal_group(process, signal.SIGKILL)  # what a killed stage left behind
            said = os.pread(log.fileno(), _KEPT_BYTES, max(0, os.fstat(log.fileno()).st_size - _KEPT_BYTES))
        if self._stopped_by:
            raise Stopped(self._stopped_by)
        return code, said.decode("utf-8", "replace")


@contextlib.contextmanager
def _shown(log: IO[bytes]) -> Iterator[None]:
    """Copy to stderr what is written to `log`, as it comes, until all of it is shown."""
    is_over = threading.Event()
    follower = threading.Thread(target=_follow, args=(log.fileno(), is_over), name="log", daemon=True)
    follower.start()
    try:
        yield
    finally:
        is_over.set()
        follower.join()


def _follow(log: int, is_over: threading.Event) -> None:
    shown = 0
    while True:
        was_over = is_over.wait(_LOOK_SECONDS)
        while data := os.pread(log, 1 << 16, shown):
            shown += len(data)
            with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it any more
                sys.stderr.buffer.write(data)
                sys.stderr.flush()
        if was_over:
            return


def _signal_group(process: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)
