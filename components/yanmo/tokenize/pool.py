"""Jobs in worker processes; threads would not scale (1.1 to 1.2 on two cores, knowledge/tokens.md)."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from yanmo.common.errors import StorageError
from yanmo.common.logs import Progress
from yanmo.tokenize.shards import Done, Job, tokenize_file

log = logging.getLogger(__name__)
_PR_SET_PDEATHSIG = 1


def run_all(jobs: list[Job], workers: int, here: Callable[[Job], Done]) -> list[Done]:
    """The results of `jobs`, in their order.

    Args:
        workers: processes; with 1 the jobs run in this one, by `here`.

    Raises:
        StorageError: a worker was killed, most often for memory.
    """
    progress = Progress(log, "tokenized file", len(jobs), unit="files")
    if workers <= 1:
        return [_noted(progress, here(job)) for job in jobs]
    log.info("%d files in %d processes", len(jobs), workers)
    context = multiprocessing.get_context("spawn")  # fork would copy the threads that serve metrics
    pool = ProcessPoolExecutor(workers, context, initializer=_die_with_parent, initargs=(os.getpid(),))
    try:
        done = [_noted(progress, one) for one in pool.map(tokenize_file, jobs)]
    except BaseException as error:
        for child in multiprocessing.active_children():
            child.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        if not isinstance(error, BrokenProcessPool):
            raise
        raise StorageError(
            f"a worker process was killed, most often for lack of memory ({error}); run again with fewer "
            f"--workers (there were {workers}), or with smaller document files"
        ) from error
    pool.shutdown()
    return done


def _noted(progress: Progress, done: Done) -> Done:
    progress.add(1)
    return done


def _die_with_parent(parent: int) -> None:
    """End this worker when the stage's process is killed (Linux): it would wait for work forever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
