"""Ends a rank that makes no progress, with the stacks of all its threads in the log.

A rank that waits for a dead or frozen one in a collective waits silently, for the collective's own time limit
or for ever. Here each rank has a thread that expects a `beat` every so often; when none comes it dumps all
stacks with faulthandler and ends the process with exit code 75, so that the run is tried again. While beats
come it touches a file once a second, from which the supervisor sees a rank that is frozen itself (SIGSTOP, a
stuck driver) and cannot say so.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FOLDER = "heartbeats"
_PERIOD_SECONDS = 1.0


class Watchdog:
    """Expects `beat` at least every `limit` seconds from when it is started."""

    def __init__(self, folder: Path, rank: int, limit: float, on_hang: Callable[[str], None]) -> None:
        """Args:
        folder: the run's folder.
        limit: seconds without a beat; 0 never ends the process.
        on_hang: told in words what happened, before the process ends; must not wait for anything.
        """
        self._path = heartbeat_path(folder, rank)
        self._limit, self._on_hang = limit, on_hang
        self._beat = time.monotonic()
        self._doing = "starting"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="watchdog")

    def start(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(str(os.getpid()), encoding="utf-8")
        self._thread.start()

    def stop(self) -> None:
        """No more beats will come, and that is right."""
        self._stop.set()

    def beat(self, doing: str) -> None:
        """The training thread is alive and begins something; costs less than a microsecond."""
        self._doing, self._beat = doing, time.monotonic()

    def _run(self) -> None:
        touched = 0.0
        while not self._stop.wait(_PERIOD_SECONDS):
            silent = time.monotonic() - self._beat
            if self._limit and silent > self._limit:
                self._end(silent)
            if self._beat > touched:
                touched = time.monotonic()
                with suppress(OSError):  # a full disk is found by who writes what matters
                    os.utime(self._path)

    def _end(self, silent: float) -> None:
        sys.stderr.flush()
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        self._on_hang(
            f"no progress for {silent:.0f} s while {self._doing} (--hang-seconds {self._limit:g}); the "
            "stacks of all threads are in workers.log. Another rank or the machine may be stuck; run the "
            "same command again, it goes on from the last checkpoint"
        )
        os._exit(75)


def heartbeat_path(folder: Path, rank: int) -> Path:
    """The file that a rank's watchdog touches while the rank makes progress; it holds the process id."""
    return folder / FOLDER / f"rank-{rank:05d}"


def silent_ranks(folder: Path, seconds: float, now: Callable[[], float] = time.time) -> list[int]:
    """Ranks whose heartbeat is older than so many seconds, in order."""
    found = []
    for path in sorted((folder / FOLDER).glob("rank-*")):
        with suppress(FileNotFoundError):
            if now() - path.stat().st_mtime > seconds:
                found.append(int(path.name.removeprefix("rank-")))
    return found


def forget_heartbeats(folder: Path) -> None:
    """Remove the files of an earlier start."""
    for path in (folder / FOLDER).glob("rank-*"):
        path.unlink(missing_ok=True)
