"""A function of many tasks, by workers, in the order of the tasks; the workers stay for the next call."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Generic, TypeVar, cast

from yanmo.common.fork_server import at_exit
from yanmo.common.workers import LESS, Workers

T = TypeVar("T")
R = TypeVar("R")

FEW = 8
"""With no more tasks than this `ordered_map` does them in this process, unless there are workers already."""
_shared: dict[int, Workers] = {}
"""Number -> workers that stay for the phases that follow."""


def ordered_map(function: Callable[[T], R], tasks: Iterable[T], workers: int, less: str = LESS) -> Results[R]:
    """`function` of every task, in the order of tasks; at most a few tasks are held at a time.

    Where workers do it they begin at once, before the first result is asked for, and stay for the next call.

    Args:
        function: importable by name; its argument and result are pickled.
        workers: processes at most.
        less: as in `Workers`.

    Raises:
        WorkerLost: a worker was killed; raised by the results.
    """
    tasks = iter(tasks)
    few = 0 if workers in _shared else FEW
    head = list(itertools.islice(tasks, few + 1)) if workers > 1 else []
    everything = itertools.chain(head, tasks)
    if len(head) <= few:
        return Results(map(function, everything))
    found = _workers(workers)
    found.less = less
    return Results((found.submit(function, task) for task in everything), found)


def start_workers(workers: int, tasks: int) -> None:
    """Start the workers that so many tasks will need soon, while this process does something else."""
    if workers > 1 and workers not in _shared:
        _workers(workers).start(tasks)


def _workers(count: int) -> Workers:
    if count not in _shared:
        _shared[count] = Workers(count)
    return _shared[count]


class Results(Generic[R]):
    """An iterator over results, and a context that ends the work that nobody will ask for."""

    def __init__(self, made: Iterator[R] | Iterator[Future[R]], workers: Workers | None = None) -> None:
        """Args:
        workers: who make the results; without them they are made when they are asked for.
        """
        self._made, self._workers = made, workers
        self._waiting: deque[Future[R]] = deque()
        if workers:
            self._begin(2 * workers.count)

    def __enter__(self) -> Results[R]:
        return self

    def __exit__(self, error: object, *more: object) -> None:
        if error:
            self._abandon()
        self.close()

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        if not self._workers:
            return cast(R, next(self._made))
        self._begin(1)
        if not self._waiting:
            raise StopIteration
        try:
            return self._waiting.popleft().result()
        except BaseException:
            self._abandon()
            raise

    def _begin(self, count: int) -> None:
        try:
            self._waiting.extend(cast(Iterator[Future[R]], itertools.islice(self._made, count)))
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """End the workers at once: they may be writing where the caller cleans up."""
        if self._workers:
            _shared.pop(self._workers.count, None)
            self._workers.close(at_once=True)
            self._waiting.clear()

    def close(self) -> None:
        """Start nothing more, and wait for what is being done."""
        for future in self._waiting:
            future.cancel()
        wait_for(self._waiting)
        self._waiting.clear()


def _end() -> None:
    for workers in _shared.values():
        workers.close(at_once=True)


at_exit(_end)  # before the fork server's own: what is registered last is done first
