"""Jobs in worker processes: each reads, encodes and writes whole files, so that only names are passed on.

Threads were the alternative, as the kernel runs without the interpreter's lock: what is around it does not.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from yanmo.common.errors import WorkerLost
from yanmo.common.logs import Progress
from yanmo.tokenize.shards import Done, Job, tokenize_file

log = logging.getLogger(__name__)
_PR_SET_PDEATHSIG = 1
S = TypeVar("S")
T = TypeVar("T")
Encode = Callable[[Job], Done]


def run_all(make: Callable[[S, Encode], T], shards: Sequence[S], workers: int, here: Encode) -> list[T]:
    """`make(shard, encode)` of every shard, in their order.

    Args:
        make: commits what `encode` writes for a shard; called in a thread per worker, since it waits.
        workers: processes that encode; with 1 it is done in this one, by `here`.

    Raises:
        WorkerLost: a worker was killed, most often for memory.
    """
    progress = Progress(log, "tokenized file", len(shards), unit="files")
    if workers <= 1 or len(shards) <= 1:
        return list(_noted(progress, (make(shard, here) for shard in shards)))
    log.info("%d files in %d processes", len(shards), workers)
    context = multiprocessing.get_context("spawn")  # fork would copy the threads that serve metrics
    pool = ProcessPoolExecutor(workers, context, initializer=_die_with_parent, initargs=(os.getpid(),))
    threads = ThreadPoolExecutor(workers, "commit")

    def encode(job: Job) -> Done:
        return pool.submit(tokenize_file, job).result()

    try:
        return list(_noted(progress, threads.map(lambda shard: make(shard, encode), shards)))
    except BaseException as error:
        for child in multiprocessing.active_children():
            child.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        if not isinstance(error, BrokenProcessPool):
            raise
        raise WorkerLost(
            f"a worker process was killed, most often for lack of memory ({error}); run again, with fewer "
            f"--workers (there were {workers}) or smaller document files where it happens again"
        ) from error
    finally:
        threads.shutdown(cancel_futures=True)  # waits: leases are given up, half-written parts removed
        pool.shutdown()


def _noted(progress: Progress, made: Iterator[T]) -> Iterator[T]:
    for one in made:
        progress.add(1)
        yield one


def _die_with_parent(parent: int) -> None:
    """End this worker when the stage's process is killed (Linux): it would wait for work forever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
