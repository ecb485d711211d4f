"""The workers of one time window as the supervisor sees them: processes, their log, how they ended."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from yanmo.common.bar import above_the_bar
from yanmo.common.errors import WorkerLost
from yanmo.common.log_lines import Line, read_line
from yanmo.common.parent import PARENT
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import Heartbeats, alive
from yanmo.train.job import Place, Status, parse_status
from yanmo.train.supervision.ending import RankLook, looks_of
from yanmo.train.supervision.ranks import LOOPBACK_INTERFACE, Ranks, environments, meeting_file
from yanmo.train.supervision.startup import Startup

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 120.0
"""How long the workers may take to save after they were asked to stop."""
FOLLOW_SECONDS = 15.0
"""How long the other ranks may take to end after one failed: they may wait for it in a collective."""
FROZEN_SECONDS = 20.0
"""How long after `--hang-seconds` a silent rank counts as frozen: a live one has ended itself by then."""
_UNHEARD_SECONDS = 5.0
"""A rank whose watchdog's thread has not run for so long stands still, if that of another has."""
_LAST_WORDS_SECONDS = 30.0
"""How long the workers' log is still read after they have ended."""

_SPINS = "3000"
"""How often a thread of libgomp's looks whether the others are done, before it sleeps.

By itself it looks 300,000 times, and where other work wants the cores, it takes them from the thread that
it waits for (measured: docs/train.md#speed).
"""
_ADDRESSES = ("NCCL_COMM_ID", "NCCL_RAS_ADDR")
"""Variables by which NCCL would listen elsewhere than at its interface."""
_OF_LAUNCHERS = ("PET_", "TORCHELASTIC_")
"""How variables begin by which a launcher tells torch's ranks of each other: ours are told by us alone."""


class Frozen(WorkerLost):
    """A rank stands still and cannot report it: stopped by a person, a debugger or a stuck driver."""

    looks: Mapping[int, RankLook] = {}
    """The ranks as they then were."""
    rank: int | None = None
    """The one that stands still, where it is one."""


def start(options: TrainConfig, job_path: Path, place: Place | None = None) -> Ranks:
    """Start the ranks of this node.

    Args:
        place: where they stand among those of several nodes.
    """
    around = {name: text for name, text in os.environ.items() if not name.startswith(_OF_LAUNCHERS)}
    env = {
        **around,
        "OMP_NUM_THREADS": str(options.threads),
        "PYTHONWARNINGS": "ignore",
        PARENT: str(os.getpid()),
        # Sums in another order have other last digits; this keeps runs on one machine equal.
        "MKL_CBWR": os.environ.get("MKL_CBWR", "AUTO,STRICT"),
    }
    if "OMP_WAIT_POLICY" not in env:
        env.setdefault("GOMP_SPINCOUNT", _SPINS)
    kept: tuple[int, ...] = ()
    if place:
        env.setdefault("GLOO_SOCKET_IFNAME", place.interface)
    else:  # nobody beyond this machine has to reach a rank, whatever the environment says
        env = {name: text for name, text in env.items() if name not in _ADDRESSES}
        env |= {"GLOO_SOCKET_IFNAME": LOOPBACK_INTERFACE, "NCCL_SOCKET_IFNAME": f"={LOOPBACK_INTERFACE}"}
        meeting, kept = meeting_file(job_path.parent, options.ranks)
        env |= meeting
    command = [sys.executable, "-m", "yanmo.train.worker", str(job_path)]
    try:
        of_ranks = [{**env, **variables} for variables in environments(options.ranks, place)]
        return Ranks(command, of_ranks, place.first_rank if place else 0, kept)
    finally:
        for file in kept:
            os.close(file)


def watch(
    group: Ranks,
    workers_log: WorkersLog,
    folder: Path,
    *,
    ranks: int,
    hang_seconds: float,
    stopping: Sequence[float],
    each_time: Callable[[], None],
    first_rank: int = 0,
    silence_seconds: float = 0.0,
) -> Mapping[int, RankLook]:
    """Wait for the workers; return early if they have to be ended from outside.

    Returns:
        How the ranks looked when the first of them failed; empty where none was seen to.

    Args:
        stopping: holds the monotonic time of a request to stop, once there was one.
        each_time: called a few times a second.
        first_rank: of this node's.
        silence_seconds: how long no thread of a rank may run, 0 for as long as it may make no progress.

    Raises:
        Frozen: a rank stands still, no rank ever began, or the workers do not stop when asked to.
    """
    failed_at, heartbeats, signs = 0.0, Heartbeats(folder), alive(folder)
    looks: Mapping[int, RankLook] = {}
    startup = Startup(folder, ranks, lambda: workers_log.last_line, first_rank=first_rank)
    while not group.have_ended:
        time.sleep(_POLL_SECONDS)
        each_time()
        now = time.monotonic()
        unheard = signs.silent(_UNHEARD_SECONDS)
        if stopping and now - stopping[0] > _GRACE_SECONDS:
            error = Frozen(
                f"the workers did not save within {_GRACE_SECONDS:.0f} s after they were asked to stop, and "
                "were ended; run the same command again to go on from the last checkpoint"
            )
            error.looks = looks_of(folder, unheard)
            raise error
        has_failed = bool(group.codes) or any(status.state == "failed" for status in workers_log.statuses)
        if has_failed and not failed_at:
            failed_at, looks = now, looks_of(folder, unheard)
        if failed_at and now - failed_at > FOLLOW_SECONDS:
            return looks
        nobody = startup.look()
        if hang_seconds and nobody > hang_seconds + FROZEN_SECONDS:
            raise Frozen(
                f"none of {ranks} workers has begun within {nobody:.0f} s (--hang-seconds); run the "
                f"same command again. Last lines that were written:\n{workers_log.tail}"
            )
        limit, of = hang_seconds + FROZEN_SECONDS, "--hang-seconds"
        silent = heartbeats.silent(limit) if hang_seconds else []
        if silence_seconds and not silent:
            limit, of = silence_seconds, "by --collective-seconds"
            silent = signs.silent(limit)
        ended = {status.rank for status in workers_log.statuses}  # one of them may still write the model
        silent = [rank for rank in silent if rank not in ended]
        if silent and not failed_at:
            looks = looks_of(folder, unheard)
            rank = next((rank for rank in silent if rank in looks and looks[rank].frozen), silent[0])
            error = Frozen(
                f"rank {rank} stands still and does not answer (a stopped process, a stuck driver): no "
                f"sign of life for {limit:.0f} s ({of}); run the same command again to go on from the last "
                "checkpoint"
            )
            error.looks, error.rank = looks, rank
            raise error
    return looks


class WorkersLog(threading.Thread):
    """Reads all that the workers write, even if the disk is full.

    Our own lines are shown at once, all lines go to workers.log, and statuses are collected.
    """

    def __init__(self, group: Ranks, path: Path) -> None:
        super().__init__(daemon=True)
        self._pipe, self._path = group.stdout, path
        self._tail: deque[str] = deque(maxlen=15)
        self.statuses: list[Status] = []
        self.said: dict[int, str] = {}
        """The last line of each rank."""

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
                    rank, words = _whose(own)
                    self.said[rank] = words
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
        """The last lines."""
        return "".join(self._tail.copy())

    @property
    def last_line(self) -> str:
        """The last line that is not empty."""
        return next((line.strip() for line in reversed(self._tail.copy()) if line.strip()), "")


_RANK = re.compile(r"rank (\d+): ")


def _whose(line: Line) -> tuple[int, str]:
    """The rank that wrote a line, and what it says; plain lines of the first rank do not name it."""
    found = _RANK.match(line.message)
    if found:
        return int(found[1]), line.message[found.end() :]
    number = str(line.values.get("rank", 0))
    return int(number) if number.isdigit() else 0, line.message
