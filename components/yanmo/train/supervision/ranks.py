"""The ranks of this node: processes that the supervisor starts itself, and how they end.

Each rank is told which one it is, and where one fails the others are asked to end.

On one node nothing listens but gloo and NCCL, on the loopback interface. The ranks meet in a file without a
name (backends/process_group.py), which no other user can open and which is gone with the last of them.

Alternative not taken: torchrun. Its dynamic rendezvous listens on all interfaces and unpickles what it finds
there, so that whoever reaches the port runs code in the training (tested: test_ports.py). It also imports
torch before it starts a rank, hides exit codes, and looks up the machine's name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from yanmo.common.parent import PARENT
from yanmo.train.config import TrainConfig
from yanmo.train.job import MEETING, Place

_SPINS = "3000"
"""How often a thread of libgomp's looks whether the others are done, before it sleeps.

By itself it looks 300,000 times, and where other work wants the cores, it takes them from the thread that
it waits for (measured: docs/reference/measurements.md#speed).
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
