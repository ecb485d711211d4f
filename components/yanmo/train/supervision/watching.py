"""The ranks of this node while they run: their heartbeats and their log."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from yanmo.common.bar import above_the_bar
from yanmo.common.errors import WorkerLost
from yanmo.common.log_lines import read_line
from yanmo.train.health.watchdog import Heartbeats, Silence, alive, doings
from yanmo.train.job import Place, Status, parse_status
from yanmo.train.supervision.ranks import Ranks

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 120.0
"""How long the workers may take to save after they were asked to stop."""
FOLLOW_SECONDS = 15.0
"""How long the other ranks may take to end after one failed: they may wait for it in a collective."""
FROZEN_SECONDS = 20.0
"""How long after `--hang-seconds` a silent rank counts as frozen: a live one has ended itself by then."""
_LAST_WORDS_SECONDS = 30.0
"""How long the workers' log is still read after they have ended."""


class Frozen(WorkerLost):
    """A rank stands still and cannot report it: stopped by a person, a debugger or a stuck driver."""

    rank: int | None = None
    """The one that stands still, where it is one."""


def watch(
    group: Ranks,
    workers_log: WorkersLog,
    folder: Path,
    hang_seconds: float,
    place: Place | None,
    stopping: Sequence[float],
    each_time: Callable[[], None],
) -> None:
    """Wait for the workers; return early if they have to be ended from outside.

    Args:
        place: of several nodes, says how long no thread of a rank may run; else as long as it may make no
            progress.
        stopping: holds the monotonic time of a request to stop, once there was one.
        each_time: called a few times a second.

    Raises:
        Frozen: a rank stands still, no rank ever began, or the workers do not stop when asked to.
    """
    failed_at, begun, nobody = 0.0, False, Silence()
    heartbeats, signs = Heartbeats(folder), alive(folder)
    silence_seconds = place.silence_seconds if place else 0.0
    while not group.have_ended:
        time.sleep(_POLL_SECONDS)
        each_time()
        now = time.monotonic()
        if stopping and now - stopping[0] > _GRACE_SECONDS:
            raise Frozen(
                f"the workers did not save within {_GRACE_SECONDS:.0f} s after they were asked to stop, and "
                "were ended; run the same command again to go on from the last checkpoint"
            )
        has_failed = bool(group.codes) or any(status.state == "failed" for status in workers_log.statuses)
        failed_at = failed_at or (now if has_failed else 0.0)
        if failed_at:
            if now - failed_at > FOLLOW_SECONDS:
                return
            continue
        begun = begun or bool(doings(folder))
        unbegun = nobody.look(None)
        if hang_seconds and not begun and unbegun > hang_seconds + FROZEN_SECONDS:
            raise Frozen(
                f"none of the workers has begun within {unbegun:.0f} s (--hang-seconds); run the "
                f"same command again. Last lines that were written:\n{workers_log.tail}"
            )
        limit, of = hang_seconds + FROZEN_SECONDS, "--hang-seconds"
        silent = heartbeats.silent(limit) if hang_seconds else []
        if silence_seconds and not silent:
            limit, of = silence_seconds, "by --collective-seconds"
            silent = signs.silent(limit)
        ended = {status.rank for status in workers_log.statuses}  # one of them may still write the model
        silent = [rank for rank in silent if rank not in ended]
        if silent:
            error = Frozen(
                f"rank {silent[0]} stands still and does not answer (a stopped process, a stuck driver): no "
                f"sign of life for {limit:.0f} s ({of}); run the same command again to go on from the last "
                "checkpoint"
            )
            error.rank = silent[0]
            raise error


class WorkersLog(threading.Thread):
    """Reads all that the workers write, even if the disk is full.

    Our own lines are shown at once, all lines go to workers.log, and statuses are collected.
    """

    def __init__(self, group: Ranks, path: Path) -> None:
        super().__init__(daemon=True)
        self._pipe, self._path = group.stdout, path
        self._tail: deque[str] = deque(maxlen=15)
        self.statuses: list[Status] = []

    def run(self) -> None:
        # Nothing may end this thread: workers block when nobody reads, and their last lines are here.
        with self._open() as file:
            for line in self._pipe:
                status = parse_status(line)
                if status is not None:
                    self.statuses.append(status)
                    continue
                text = line.decode(errors="replace")
                self._tail.append(text)
                with suppress(OSError):  # a full disk
                    file.write(line)
                own = read_line(text.rstrip("\n"))  # the rest, of libraries, is in workers.log
                if own and own.stage == "train":
                    with (
                        suppress(OSError, ValueError),
                        above_the_bar(),
                    ):  # a full disk, a `| tee` that is gone
                        sys.stderr.buffer.write(line)
                        sys.stderr.flush()

    def _open(self) -> FileIO:
        try:
            return FileIO(self._path, "ab")
        except OSError as error:
            log.warning("%s cannot be written (%s); the workers' log is not kept", self._path, error)
            return FileIO(os.devnull, "wb")

    def wait(self) -> None:
        """Wait until all is read, but not forever: a process that outlives the workers may hold the pipe."""
        self.join(_LAST_WORDS_SECONDS)

    @property
    def tail(self) -> str:
        """Return the last lines."""
        return "".join(self._tail.copy())
