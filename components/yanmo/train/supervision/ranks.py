"""The ranks of this node: processes that the supervisor starts itself, watches, and whose log it reads.

Each rank is told which one it is, and where one fails the others are asked to end.

On one node nothing listens but gloo and NCCL, on the loopback interface. The ranks meet in a file without a
name (backends/process_group.py), which no other user can open and which is gone with the last of them.

Alternative not taken: torchrun. Its dynamic rendezvous listens on all interfaces and unpickles what it finds
there, so that whoever reaches the port runs code in the training (tested: test_ports.py). It also imports
torch before it starts a rank, hides exit codes, and looks up the machine's name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import IO

from yanmo.common.bar import above_the_bar
from yanmo.common.child_processes import PARENT
from yanmo.common.errors import WorkerLost
from yanmo.common.logs import read_line
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import BEFORE_OTHERS, Heartbeats, Silence, alive, doings
from yanmo.train.job import MEETING, Place, Status, WorkerJob, parse_status
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.supervision.ending import Ending, describe

log = logging.getLogger(__name__)
_DOING_SECONDS = 3.0
"""After so long a rank has written down what it was doing."""
_SPINS = "3000"
"""How often a thread of libgomp's looks whether the others are done, before it sleeps.

By itself it looks 300,000 times, and where other work wants the cores, it takes them from the thread that
it waits for (measured: benchmarks/NOTES.md).
"""
_ADDRESSES = ("NCCL_COMM_ID", "NCCL_RAS_ADDR")
"""Variables by which NCCL would listen elsewhere than at its interface."""
_OF_LAUNCHERS = ("PET_", "TORCHELASTIC_")
"""How variables begin by which a launcher tells torch's ranks of each other: ours are told by us alone."""

LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACE = "lo" if sys.platform == "linux" else "lo0"


class Ranks:
    """Processes that write into one pipe, `stdout`.

    Each is waited for by a thread of its own, so that the order in which they end is known: they often end
    within milliseconds of each other, and the first one tells the cause.
    """

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        first_rank: int = 0,
        kept: Sequence[int] = (),
    ) -> None:
        """Args:
        command: of every rank.
        environments: the variables of each.
        first_rank: of this node's.
        kept: open files that they inherit.
        """
        self.codes: dict[int, int] = {}
        """Exit codes of ranks that failed, negative for a signal, the first one first."""
        self._lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        reading, writing = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(reading, "rb")
        try:
            # A session of its own: Ctrl-C reaches only the supervisor, which asks for an orderly stop. What
            # the ranks' libraries print goes to their log: stdout is the supervisor's, and may be read by a
            # script.
            for rank, variables in enumerate(environments, first_rank):
                self._processes[rank] = subprocess.Popen(
                    command,
                    env=variables,
                    stdout=writing,
                    stderr=writing,
                    pass_fds=kept,
                    start_new_session=True,
                )
        except BaseException:
            self._kill()
            raise
        finally:
            os.close(writing)
        for rank in self._processes:
            thread = threading.Thread(target=self._wait_for, args=(rank,), daemon=True, name=f"rank-{rank}")
            self._threads.append(thread)
            thread.start()

    @property
    def pids(self) -> list[int]:
        """Process ids, in the order of ranks."""
        return [process.pid for process in self._processes.values()]

    @property
    def have_ended(self) -> bool:
        """All of them."""
        return not any(thread.is_alive() for thread in self._threads)

    def end(self) -> None:
        """End those that still run, at once."""
        self._kill()
        for thread in self._threads:
            thread.join()

    def _kill(self) -> None:
        for process in self._processes.values():
            process.kill()

    def _wait_for(self, rank: int) -> None:
        code = self._processes[rank].wait()
        if not code:
            return
        with self._lock:
            is_first, self.codes[rank] = not self.codes, code
        if is_first:  # before they train they end at once; later they end by what they lose with that rank
            for other in self._processes.values():
                with contextlib.suppress(ProcessLookupError):
                    other.send_signal(signal.SIGTERM)


def environments(ranks: int, place: Place | None) -> list[dict[str, str]]:
    """Return what tells each rank of this node which one it is.

    Args:
        place: where the node stands among several.
    """
    first, size = (place.first_rank, place.nnodes * place.ranks) if place else (0, ranks)
    of_all = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(ranks)}
    return [{**of_all, "RANK": str(first + local), "LOCAL_RANK": str(local)} for local in range(ranks)]


def meeting_file(folder: Path, ranks: int) -> tuple[dict[str, str], tuple[int, ...]]:
    """Return where the ranks of one node meet: the variable that says so, and the file that they inherit.

    Args:
        folder: holds the file where the system has none without a name (a Mac).
    """
    if ranks == 1:
        return {}, ()
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("yanmo-ranks")
        return {MEETING: f"/proc/self/fd/{file}"}, (file,)
    path = folder / "meeting"
    path.unlink(missing_ok=True)
    return {MEETING: str(path)}, ()


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


class Unbegun(Exception):
    """This process is asked to stop, and its ranks still wait for those of other nodes."""


def run_ranks(
    task: WorkerJob, gauges: MetricsGauges, stopping: Sequence[float], each_time: Callable[[], None]
) -> Ending:
    """Run the ranks of this node until they have ended; return all that is known of that.

    Args:
        stopping: holds the monotonic time of a request to stop, once there was one.
        each_time: called a few times a second.

    Raises:
        Frozen: they had to be ended from outside.
        Unbegun: see there.
    """
    options, place = task.options, task.place

    def look() -> None:
        is_late = bool(stopping) and time.monotonic() - stopping[0] > _DOING_SECONDS
        if place and is_late and all(doing in BEFORE_OTHERS for doing in doings(task.own).values()):
            raise Unbegun("while its ranks waited for those of other nodes")
        each_time()

    gauges.starting(options, place)
    group = start(options, task.write(), place)
    workers_log = WorkersLog(group, task.own / "workers.log")
    workers_log.start()
    try:
        watch(group, workers_log, task.own, options.hang_seconds, place, stopping, look)
    except BaseException as error:
        gauges.ended()
        if isinstance(error, Frozen):
            why, others = ("", "did not stop") if error.rank is None else ("stands still", "waited for it")
            rank = 0 if error.rank is None and options.world_size == 1 else error.rank
            describe(_ending(task, workers_log, group), error, rank, why, others)
        raise
    finally:
        group.end()
    workers_log.wait()
    gauges.ended()
    return _ending(task, workers_log, group)


def full_ranks(ending: Ending, *, was_killed: bool) -> list[Status]:
    """Return the ranks that lacked memory.

    Args:
        was_killed: whether the system killed processes of this container for it meanwhile.
    """
    full = [status for status in ending.statuses if status.out_of_memory]
    lost = sorted(set(ending.own) - {status.rank for status in ending.statuses}) if was_killed else []
    message = "killed for lack of the container's memory"
    return full + [Status(rank, "failed", message=message, out_of_memory=True) for rank in lost]


def _ending(task: WorkerJob, workers_log: WorkersLog, group: Ranks) -> Ending:
    return Ending(
        ranks=task.options.world_size,
        own=task.own_ranks,
        of_a_node=task.options.ranks if task.options.nnodes > 1 else 0,
        statuses=workers_log.statuses,
        doings=doings(task.own),
        codes=dict(group.codes),
        tail=workers_log.tail,
    )
