"""Where every rank stands, on demand: SIGUSR1 to `yanmo train` logs the stacks of all threads of all ranks.

faulthandler writes a stack from C, so a rank answers that stands in a collective or in a driver's call, and
nothing of the training waits or changes. Each writes into a file of its own beside its heartbeat, which the
supervisor reads into the log under the rank's number; a rank that is stopped does not answer, and that is
said. py-spy would see a stopped rank's stack too, but needs rights (ptrace) that pods do not have.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from yanmo.common.command_end import stacks_on_request
from yanmo.train.health.watchdog import doings, heartbeat_path, pid_in

log = logging.getLogger(__name__)
SIGNAL = signal.SIGUSR1
_ANSWER_SECONDS = 3.0
"""How long a rank may take to write; a process that is not stopped takes a millisecond."""
_LOOK_SECONDS = 0.05
_QUIET_LOOKS = 4
"""After so many looks at a file that no longer grows it is whole: on a busy machine a rank pauses in it."""
_MOST_BYTES = 65_536
"""Of a rank's stacks in the log; the end is left out."""


def stacks_path(folder: Path, rank: int) -> Path:
    """The file next to a heartbeat that holds the stacks last asked for."""
    heartbeat = heartbeat_path(folder, rank)
    return heartbeat.with_name(f"stacks-{heartbeat.name}")


def answer_requests(folder: Path, rank: int) -> None:
    """Let this process write its stacks when it is asked to; before its heartbeat says where to ask."""
    path = stacks_path(folder, rank)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("wb")
    except OSError as error:  # a full disk
        log.warning("%s cannot be written (%s): this rank shows no stacks", path, error)
        signal.signal(SIGNAL, signal.SIG_IGN)
        return
    faulthandler.register(SIGNAL, file, all_threads=True)  # it keeps the file open


class Requests:
    """Requests for stacks that this process, the supervisor, has had."""

    def __init__(self) -> None:
        self._asked = False

    @contextmanager
    def heard(self) -> Iterator[Requests]:
        """Inside, SIGUSR1 is a request; afterwards it writes this process's stacks, as in other stages."""

        def ask(signum: int, frame: FrameType | None) -> None:
            self._asked = True

        faulthandler.unregister(SIGNAL)  # else it would not take the signal back afterwards
        signal.signal(SIGNAL, ask)
        try:
            yield self
        finally:
            stacks_on_request()

    def serve(self, folder: Path) -> None:
        """Log the stacks of all ranks, if that was asked for since the last call."""
        if self._asked:
            self._asked = False
            log_stacks(folder)


def log_stacks(folder: Path, seconds: float = _ANSWER_SECONDS) -> None:
    """Ask every rank that has begun for its stacks, and log them.

    Args:
        seconds: how long they may take, all together.
    """
    found, sizes = doings(folder), {}
    for rank in found:
        path, pid = stacks_path(folder, rank), pid_in(folder, rank)
        sizes[rank] = _size(path)
        with suppress(ProcessLookupError, PermissionError):
            if pid:
                os.kill(pid, SIGNAL)
    if not found:
        log.info("stacks: no rank has begun yet")
    for rank, text in _answers(folder, sizes, seconds):
        if text:
            log.info("stacks of rank %d, in %s:\n%s", rank, found[rank], text)
        else:
            log.warning("rank %d, in %s, shows no stacks: it is stopped, or gone", rank, found[rank])


def _answers(folder: Path, sizes: dict[int, int], seconds: float) -> Iterator[tuple[int, str]]:
    """Each rank, and what it has written since its file had that size."""
    end = time.monotonic() + seconds
    for rank, size in sizes.items():
        path, seen, quiet = stacks_path(folder, rank), size, 0
        while time.monotonic() < end and quiet < _QUIET_LOOKS:
            time.sleep(_LOOK_SECONDS)
            now = _size(path)
            quiet = quiet + 1 if now == seen > size else 0
            seen = now
        with suppress(OSError), path.open("rb") as file:
            file.seek(size)
            yield rank, file.read(_MOST_BYTES).decode("utf-8", "replace").rstrip()
            continue
        yield rank, ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
