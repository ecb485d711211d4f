"""Spreads a function of many tasks: over processes of this machine, or over a Ray cluster.

    with ordered_map(function, tasks, workers) as results:    # in the order of the tasks
        for result in results: ...

A task is pickled. A path in it is a file, of a store or of this process, that the task reads, or one of an
attempt that it makes: where the work is done elsewhere, its files are brought there and what it makes is put
into the store (shared_files.py). Its result is small. A stage says once how its work is spread (`begin`).
"""

from __future__ import annotations

import itertools
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from yanmo.common.child_processes import at_exit
from yanmo.common.control_group import workers_for
from yanmo.common.workers import LESS, Workers
from yanmo.store.commit import Attempt
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output

if TYPE_CHECKING:
    from yanmo.engine.ray_cluster import Cluster

T = TypeVar("T")
R = TypeVar("R")

_FEW = 8
"""With no more tasks than this `ordered_map` does them in this process, unless there are workers already."""
_shared: dict[int, Workers] = {}
"""Number -> workers that stay for the phases that follow."""
_cluster: Cluster | None = None


def begin(options: Any, store: ObjectStore) -> None:
    """Spread what this process does from here on as a stage's options say: `engine` and what belongs to it.

    Raises:
        UsageError: `--engine ray` without an address.
        EnvironmentFault: the package is not installed, or the cluster is not one to work on.
        StorageError: the cluster does not answer.
    """
    global _cluster
    _end_cluster()
    if options.engine == "ray":
        from yanmo.engine.ray_cluster import Cluster  # imported late: most runs need no cluster

        _cluster = Cluster(options, store)


def is_remote() -> bool:
    """Return whether the work is done on other machines."""
    return _cluster is not None


def tasks_at_a_time(asked: int) -> int:
    """Return how many tasks are done at a time: as many as were asked for; where that is 0, one for each CPU
    of this process, or of the cluster as it is now."""
    return max(2, asked or _cluster.cpus()) if _cluster else workers_for(asked)


def ordered_map(function: Callable[[T], R], tasks: Iterable[T], workers: int, less: str = LESS) -> Results[R]:
    """`function` of every task, in the order of tasks; at most a few tasks are held at a time.

    Where workers do it they begin at once, before the first result is asked for, and stay for the next call.

    Args:
        function: importable by name; its argument and result are pickled.
        workers: tasks at a time at most; 1 does all in this process.
        less: as in `Workers`.

    Raises:
        WorkerLost: a worker was killed, on a cluster several times; raised by the results.
    """
    tasks = iter(tasks)
    if _cluster and workers > 1:
        return Results((_cluster.submit(function, task, less=less) for task in tasks), _cluster)
    few = 0 if workers in _shared else _FEW
    head = list(itertools.islice(tasks, few + 1)) if workers > 1 else []
    everything = itertools.chain(head, tasks)
    if len(head) <= few:
        return Results(map(function, everything))
    found = _workers(workers)
    found.less = less
    return Results((found.submit(function, task) for task in everything), found)


class Pool(Protocol):
    """Calls of functions elsewhere, for threads of this process: common/workers.py, or a cluster."""

    def in_thread(self, function: Callable[..., R], *arguments: Any) -> Future[R]: ...

    def call(self, function: Callable[..., R], *arguments: Any, about: str = "") -> R: ...


def pool(workers: int, less: str = LESS) -> AbstractContextManager[Pool]:
    """Return a pool of so many workers, and as many threads."""
    return _cluster.pool(workers, less) if _cluster else Workers(workers, less)


def each(function: Callable[[T], R], items: Sequence[T], workers: int) -> list[R]:
    """Return `function` of every item, which itself asks workers; where these are elsewhere, of several at
    the same time, in threads."""
    if not _cluster:
        return [function(item) for item in items]
    with _cluster.pool(workers, LESS) as threads:
        coming = [threads.in_thread(function, item) for item in items]
        for one in as_completed(coming):
            one.result()
        return [one.result() for one in coming]


def paths_for_tasks(output: Output, pattern: str) -> list[Path]:
    """Return the files of an output for tasks to read; this process may read them on this machine alone."""
    return _cluster.files.places(output, pattern) if _cluster else output.paths(pattern)


def add_made(attempt: Attempt, names: Sequence[str]) -> None:
    """List files that tasks made in the manifest of `attempt`: `Attempt.add_all`."""
    attempt.add_all(names, written=_cluster.files.written(attempt, names) if _cluster else {})


def brought_here(path: Path) -> Path:
    """Return a file that a task made as one that this process can read."""
    return _cluster.files.brought(path) if _cluster else path


def remove_folder(folder: Path) -> None:
    """Remove a folder of an attempt, and what tasks put there."""
    if _cluster:
        _cluster.files.remove(folder)
    shutil.rmtree(folder)


def _workers(count: int) -> Workers:
    if count not in _shared:
        _shared[count] = Workers(count)
    return _shared[count]


class Results(Generic[R]):
    """An iterator over results, and a context that ends the work that nobody will ask for."""

    def __init__(self, made: Iterator[R] | Iterator[Future[R]], by: Workers | Cluster | None = None) -> None:
        """Args:
        by: who makes the results; without them they are made when they are asked for.
        """
        self._made, self._by = made, by
        self._waiting: deque[Future[R]] = deque()
        if by:
            self._begin()

    def __enter__(self) -> Results[R]:
        return self

    def __exit__(self, error: object, *more: object) -> None:
        if error:
            self._abandon()
        self.close()

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        if not self._by:
            return cast(R, next(self._made))
        self._begin()
        if not self._waiting:
            raise StopIteration
        try:
            return self._waiting.popleft().result()
        except BaseException:
            self._abandon()
            raise

    def _begin(self) -> None:
        """Begin so many tasks that two for each worker are under way: one at work, and the next."""
        count = max(0, 2 * self._by.count + 1 - len(self._waiting)) if self._by else 0
        try:
            self._waiting.extend(cast(Iterator[Future[R]], itertools.islice(self._made, count)))
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """End the work at once: it may be writing where the caller cleans up."""
        if isinstance(self._by, Workers):
            if _shared.get(self._by.count) is self._by:
                del _shared[self._by.count]
            self._by.close(at_once=True)
        elif self._by:
            self._by.cancel(self._waiting)
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
    _end_cluster()


def _end_cluster() -> None:
    global _cluster
    if _cluster:
        _cluster.close()
    _cluster = None


at_exit(_end)  # before the fork server's own: what is registered last is done first
