"""The workers of one time window as the supervisor sees them: processes, their log, how they ended."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path

from yanmo.common.errors import WorkerLost
from yanmo.common.log_lines import Line, read_line
from yanmo.common.parent import PARENT
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import Heartbeats, alive
from yanmo.train.job import Place, Status, parse_status
from yanmo.train.supervision.ending import RankLook, looks_of
from yanmo.train.supervision.startup import Startup
from yanmo.train.supervision.torchrun import LOOPBACK, LOOPBACK_INTERFACE, parse_codes

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
_ALONE = {
    **{"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0"},
    **{"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": "1"},
    **{"MASTER_ADDR": LOOPBACK, "MASTER_PORT": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"},
}
"""What torchrun would tell a rank that is alone. Nobody else connects to it, so any free port does."""


class Frozen(WorkerLost):
    """A rank stands still and cannot report it: stopped by a person, a debugger or a stuck driver."""

    looks: Mapping[int, RankLook] = {}
    """The ranks as they then were."""
    rank: int | None = None
    """The one that stands still, where it is one."""


def start(options: TrainConfig, job_path: Path, place: Place | None = None) -> subprocess.Popen[bytes]:
    """Start the workers of this node: torchrun with one per rank, or the only one itself.

    Args:
        place: where they stand among those of several nodes.

    torchrun imports torch before it starts a worker: 2 CPU-seconds and as much waiting at each start, and
    for a single rank it has nothing to do.
    """
    worker = ["-m", "yanmo.train.worker", str(job_path)]
    torchrun = [
        *("-m", "yanmo.train.supervision.torchrun", "--standalone", "--max-restarts=0"),
        *(f"--local-addr={LOOPBACK}", f"--nproc-per-node={options.ranks}"),
    ]
    is_alone = options.ranks == 1
    command = [sys.executable, *([] if is_alone else torchrun), *worker]
    # Our own torchrun would read what the launcher has said of the nodes, and wait for them.
    around = {name: text for name, text in os.environ.items() if not name.startswith("PET_")}
    env = {
        "GLOO_SOCKET_IFNAME": place.interface if place else LOOPBACK_INTERFACE,
        **around,
        **(_ALONE if is_alone else {}),
        "OMP_NUM_THREADS": str(options.threads),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(_GRACE_SECONDS)),
        "PYTHONWARNINGS": "ignore",
        PARENT: str(os.getpid()),
        # Sums in another order have other last digits; this keeps runs on one machine equal.
        "MKL_CBWR": os.environ.get("MKL_CBWR", "AUTO,STRICT"),
    }
    if "OMP_WAIT_POLICY" not in env:
        env.setdefault("GOMP_SPINCOUNT", _SPINS)
    # A session of its own: Ctrl-C reaches only the supervisor, which asks for an orderly stop. What the
    # workers' libraries print goes to their log: stdout is the supervisor's, and may be read by a script.
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def watch(
    process: subprocess.Popen[bytes],
    workers_log: WorkersLog,
    folder: Path,
    *,
    ranks: int,
    hang_seconds: float,
    stopping: list[float],
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
    while process.poll() is None:
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
        if not failed_at and any(status.state == "failed" for status in workers_log.statuses):
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
            limit, of = silence_seconds, "by --standstill-seconds"
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


def end(process: subprocess.Popen[bytes]) -> None:
    """End the only worker, or torchrun and its workers, if they still run (they end with it: worker.py)."""
    if process.poll() is None:
        process.kill()
        process.wait()


class WorkersLog(threading.Thread):
    """Reads all that the workers and torchrun write, even if the disk is full.

    Our own lines are shown at once, all lines go to workers.log, and statuses are collected.
    """

    def __init__(self, process: subprocess.Popen[bytes], path: Path, first_rank: int = 0) -> None:
        """Args:
        first_rank: of this node's; torchrun counts its own from 0.
        """
        super().__init__(daemon=True)
        assert process.stdout is not None
        self._pipe, self._path, self._first_rank = process.stdout, path, first_rank
        self._tail: deque[str] = deque(maxlen=15)
        self.statuses: list[Status] = []
        self.statuses_sent = 0
        """How many of them were passed on to another node."""
        self.codes: dict[int, int] = {}
        """Exit codes of ranks that failed, as torchrun tells them."""
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
                codes = parse_codes(line)
                if codes is not None:
                    self.codes |= {self._first_rank + rank: code for rank, code in codes.items()}
                    continue
                text = line.decode(errors="replace")
                self._tail.append(text)
                with suppress(OSError):  # a full disk
                    file.write(line)
                own = read_line(text.rstrip("\n"))  # the rest, torchrun's and libraries', is in workers.log
                if own and own.stage == "train":
                    rank, words = _whose(own)
                    self.said[rank] = words
                    with suppress(OSError, ValueError):  # a full disk, a terminal or `| tee` that is gone
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
