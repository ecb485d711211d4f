"""The same function over many batches, in processes where that pays, results in order.

Workers come from a fork server: a clean process that forks them, because forking this one, with its lease and
metrics threads, may deadlock. Starting it costs about a second of CPU, so a small input is done here.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from yanmo.common.errors import EnvironmentFault

T = TypeVar("T")
R = TypeVar("R")

_FEW = 4
"""With no more batches than this the work is done in this process."""


def ordered_map(function: Callable[[T], R], tasks: Iterable[T], workers: int) -> Iterator[R]:
    """`function` of every task, in the order of tasks; at most a few tasks are held at a time.

    Args:
        function: importable by name; its argument and result are pickled.
        workers: processes at most.

    Raises:
        EnvironmentFault: a worker was killed.
    """
    tasks = iter(tasks)
    head = list(itertools.islice(tasks, _FEW + 1)) if workers > 1 else []
    everything = itertools.chain(head, tasks)
    if len(head) <= _FEW:
        yield from map(function, everything)
        return
    try:
        yield from _in_processes(function, everything, workers)
    except BrokenProcessPool as error:
        raise EnvironmentFault(
            "a worker process was killed, most likely for want of memory; "
            "use fewer --workers or a smaller --batch-bytes"
        ) from error


def _in_processes(function: Callable[[T], R], tasks: Iterator[T], workers: int) -> Iterator[R]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([function.__module__])
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    waiting: deque[Future[R]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this worker when the process that started it is gone (kill -9): nobody reads its results."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()
