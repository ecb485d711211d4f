"""Processes that this one starts: what workers are forked from, what they cost, and the end of all.

A clean process imports what workers need once (`preload`) and forks them. Forking this process, with its
lease and metrics threads, may deadlock; spawning costs every worker the imports: beside the fork server, 8
workers of curate took 3.9 times as long to start and 3.6 times the memory, 2 workers 1.7 and 1.5 times (2
cores, Python 3.11).

The system counts the workers' CPU time for the fork server, and the server's for us only once it has ended:
`cpu_seconds` asks for it before, and at the end of this process the server is ended, so that whoever waits
for us is told everything.

A process ends when the one that started it does, also by kill -9: nobody waits for it any more
(`end_with_parent`). On Linux the kernel sees to it, whatever the process is doing then (a rank may stand in C
code). It means the thread that started the process, so that one has to live as long. Where `multiprocessing`
started it the fork server stands between, which ends after its children: there, and on other systems, a
thread looks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
ALIVE: set[int] = set()
"""Process ids of the workers that have not ended."""
PARENT = "YANMO_PARENT"
"""The variable that tells a process who started it: a parent killed at once leaves no other trace."""
_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 1.0
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
"""Loaded here, as nothing may be loaded between fork and exec."""
_PID = os.getpid()
_END_SECONDS = 5.0
"""How long the end of this process waits for the fork server's."""


def preload(*modules: str) -> None:
    """Let the fork server import modules, so that no worker has to; before the first worker starts.

    Raises:
        ModuleNotFoundError: one is not there; the server would pass over it in silence.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"no module {name} to preload", name=name)
    CONTEXT.set_forkserver_preload(list(modules))


def cpu_seconds() -> float:
    """CPU time of the fork server and of all workers, those that have ended too; 0 where there is no /proc.

    `resource.getrusage` counts none of it before the server has ended.
    """
    return sum(_used(pid) for pid in [*ALIVE, *_pids()])


def count() -> int:
    """Return how many workers are alive; one that was killed counts until somebody waits for it."""
    return len(ALIVE)


def _pids() -> list[int]:
    """Return the fork server's process id, if it runs; the standard library has no public name for it."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)  # type: ignore[attr-defined]
    return [pid] if isinstance(pid, int) else []


def _used(pid: int) -> float:
    """CPU seconds of a process and of those that it has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        ticks = stat.rpartition(")")[2].split()[11:15]  # utime, stime, cutime, cstime: proc_pid_stat(5)
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def at_exit(work: Callable[[], None]) -> None:
    """Have `work` done at the end of this process, and not of its forks, whose workers these are not."""
    atexit.register(lambda: work() if os.getpid() == _PID else None)


def _end() -> None:
    """Wait for the server, which counts for us from then on, once its workers have ended."""
    stop = getattr(forkserver._forkserver, "_stop", None)  # type: ignore[attr-defined]
    if ALIVE or not _pids() or stop is None:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            stop()

    waiting = threading.Thread(target=wait, daemon=True)
    try:
        waiting.start()
    except RuntimeError:  # Python 3.12 and later start no thread at exit: it ends by itself, uncounted
        return
    waiting.join(_END_SECONDS)


def kill() -> None:
    """End the server at once; the next worker starts another one."""
    for pid in _pids():
        os.kill(pid, signal.SIGKILL)


def end_with_parent(parent: int = 0, how: signal.Signals = signal.SIGKILL) -> None:
    """End this process by the signal `how` when its parent ends; at once where it is gone already.

    Args:
        parent: its process id. Without it, it is the process that `multiprocessing` started this one for,
            else the one that `PARENT` names, else the parent of now.
    """
    started_for = None if parent else multiprocessing.parent_process()
    expected = parent or int(os.environ.get(PARENT, os.getppid()))

    def is_gone() -> bool:
        return not started_for.is_alive() if started_for else os.getppid() != expected

    def watch() -> None:
        while not is_gone():
            started_for.join() if started_for else time.sleep(_LOOK_SECONDS)
        os.kill(os.getpid(), how)

    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, how)
    if is_gone():  # it ended before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)  # between fork and exec another one would not act
    if started_for or _libc is None:
        threading.Thread(target=watch, daemon=True).start()


at_exit(_end)
