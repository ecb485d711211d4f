"""The same function over many batches, in processes where that pays, results in order.

Workers come from a fork server: a clean process that forks them, because forking this one, with its lease and
metrics threads, may deadlock. Starting it costs about a second of CPU, so a small input is done here, and the
workers stay for the phases that follow; they end with this process, however it ends.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Generic, TypeVar

from yanmo.common.errors import WorkerLost

T = TypeVar("T")
R = TypeVar("R")

FEW = 8
"""With no more batches than this the work is done in this process, unless there are workers already."""

PRELOADED = (
    "yanmo.curate.duplicates.signing",
    "yanmo.curate.mapping",
    "yanmo.curate.split.containment",
    "yanmo.curate.writing",
)
"""What the fork server imports, so that no worker has to; it passes over a name that is not there."""

_executors: dict[int, ProcessPoolExecutor] = {}
"""Number of workers -> those that were started."""


def ordered_map(function: Callable[[T], R], tasks: Iterable[T], workers: int) -> Results[R]:
    """`function` of every task, in the order of tasks; at most a few tasks are held at a time.

    Where workers do it they begin at once, before the first result is asked for.

    Args:
        function: importable by name; its argument and result are pickled.
        workers: processes at most.

    Raises:
        WorkerLost: a worker was killed; raised by the results.
    """
    tasks = iter(tasks)
    few = 0 if workers in _executors else FEW
    head = list(itertools.islice(tasks, few + 1)) if workers > 1 else []
    everything = itertools.chain(head, tasks)
    return Results(function, everything, workers if len(head) > few else 0)


def start_workers(workers: int) -> None:
    """Start the workers that will be needed soon, while this process does something else."""
    if workers > 1 and workers not in _executors:
        executor = _executor(workers)
        for _ in range(workers):
            threading.Thread(target=executor.submit, args=(int,), daemon=True).start()


class Results(Generic[R]):
    """An iterator over results, and a context that ends the work that nobody will ask for."""

    def __init__(self, function: Callable[[T], R], tasks: Iterator[T], workers: int) -> None:
        """Args:
        workers: 0 does the work in this process, when it is asked for.
        """
        self._waiting: deque[Future[R]] = deque()
        self._workers = workers
        if workers:
            self._submitted = (self._submit(function, task) for task in tasks)
            self._begin(2 * workers)
        else:
            self._made = map(function, tasks)

    def _submit(self, function: Callable[[T], R], task: T) -> Future[R]:
        try:
            return _executor(self._workers).submit(function, task)
        except BrokenProcessPool as error:
            raise self._killed() from error

    def _begin(self, count: int) -> None:
        try:
            self._waiting.extend(itertools.islice(self._submitted, count))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Results[R]:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        if not self._workers:
            return next(self._made)
        self._begin(1)
        if not self._waiting:
            raise StopIteration
        try:
            return self._waiting.popleft().result()
        except BrokenProcessPool as error:
            raise self._killed() from error

    def _killed(self) -> WorkerLost:
        _executors.pop(self._workers, None)
        return WorkerLost(
            "a worker process was killed, most often for lack of memory; run again, with fewer --workers "
            f"(there were {self._workers}) or a smaller --batch-bytes where it happens again"
        )

    def close(self) -> None:
        """Start nothing more, and wait for what is being done: it may write where the caller cleans up."""
        for future in self._waiting:
            future.cancel()
        wait_for(self._waiting)
        self._waiting.clear()


def _executor(workers: int) -> ProcessPoolExecutor:
    if workers not in _executors:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        _executors[workers] = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    return _executors[workers]


def _end_with_parent() -> None:
    """End this worker when the process that started it is gone (kill -9): nobody reads its results."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()
