"""Tasks on a Ray cluster: asked for here, done there; one that is lost is done again.

One thread waits for all tasks that are under way. Ray's own retries are off: it repeats without end what does
not fit into memory, and says nothing of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from yanmo.common.errors import EnvironmentFault, StorageError, WorkerLost, in_words
from yanmo.common.threads import thread_pool
from yanmo.common.words import plural
from yanmo.common.workers import LESS
from yanmo.engine.ray_connection import connected
from yanmo.engine.ray_worker import VARIABLES, Answer, Asked, identity
from yanmo.engine.shared_files import FilesAsked
from yanmo.store.objects import ObjectStore

log = logging.getLogger(__name__)
R = TypeVar("R")

TRIES = 4
"""Of a task whose worker or node is lost."""
_LOOK_SECONDS = 0.2
_END_SECONDS = 10.0
_CPUS_SECONDS = 5.0
_MOST_THREADS = 64


@dataclass
class _Task:
    """A task under way."""

    call: tuple[Any, ...]
    name: str
    less: str
    future: Future[Any]
    ref: Any = None
    tries: int = 0


class Cluster:
    """A connection to a Ray cluster, and the tasks under way on it."""

    def __init__(
        self, options: Any, store: ObjectStore, say_seconds: float = 60.0, answer_seconds: float = 90.0
    ) -> None:
        """Connect.

        Args:
            options: a stage's, with `ray_address`, `workers`, and where the store's server is.
            say_seconds: how often it is said what is waited for.
            answer_seconds: how long the cluster may take to say whether a task has ended. Ray's client
                connects again within 30 s, but once its data channel has ended it repeats that for ever.

        Raises:
            UsageError: no address.
            EnvironmentFault: no package, no token, another version.
            StorageError: nobody answers.
        """
        self._asked, self._say_seconds = options.workers, say_seconds
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._tasks: dict[Any, _Task] = {}
        self._closed = threading.Event()
        self._news = threading.Event()
        self._looked, self._cpus = 0.0, 0
        self._asked_at = 0.0
        """When the watcher asked for what it has no answer to yet; 0 where it has."""
        self._last_end = time.monotonic()
        self.lost = 0
        """Tasks that were done again."""
        self._ray = connected(options.ray_address)
        self.files = FilesAsked(store, self._send)
        self._store, self._proof = store, f"probes/{uuid.uuid4().hex}"
        store.create(self._proof, b"")
        self._sent: dict[tuple[str, int, int], Any] = {}
        found = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
        self._place = (store.uri, options.endpoint, options.scratch_gib, self._proof, found)
        self._remote = self._ray.remote(num_cpus=1, max_retries=0)(_work())
        self._watcher = threading.Thread(target=self._watch, name="ray", daemon=True)
        self._watcher.start()
        threading.Thread(target=self._notice_silence, name="ray silence", daemon=True).start()
        log.info("on a Ray cluster with %s", plural(self.cpus(), "CPU"))

    @property
    def count(self) -> int:
        """Return how many tasks are done at a time: as many as were asked for, else as the cluster can do
        now, which may grow with what waits for it."""
        return self._asked or max(2, self.cpus())

    def cpus(self) -> int:
        """Return the CPUs of all nodes."""
        if time.monotonic() - self._looked > _CPUS_SECONDS or not self._looked:
            with _or_gone():
                self._cpus = int(self._ray.cluster_resources().get("CPU", 0))
            self._looked = time.monotonic()
        return self._cpus

    def submit(self, function: Callable[..., R], *arguments: Any, less: str = LESS) -> Future[R]:
        """Return what `function` will give.

        Raises, when it is asked for:
            WorkerLost: its workers were lost several times. StorageError: the cluster is gone.
        """
        data, sent = self.files.task(function, arguments)
        asked = Asked(data, identity(), *self._place)
        task = _Task((tuple(asked), *sent), function.__name__, less, Future())
        self._begin(task)
        return task.future

    def call(self, function: Callable[..., R], *arguments: Any, about: str = "", less: str = LESS) -> R:
        """Return the result of `function`."""
        return self.submit(function, *arguments, less=less).result()

    @contextlib.contextmanager
    def pool(self, workers: int, less: str) -> Iterator[_Pool]:
        """Yield a pool of threads that call functions on this cluster."""
        threads = thread_pool(min(2 * workers, _MOST_THREADS), "asking")
        try:
            yield _Pool(self, threads, less)
        except BaseException:
            self.cancel()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def cancel(self, futures: Collection[Future[Any]] | None = None) -> None:
        """End tasks under way, by default all, and wait until they have ended, as they may be writing."""
        with self._lock:
            for future in [t.future for t in self._tasks.values()] if futures is None else futures:
                future.cancel()
            tasks = {ref: t for ref, t in self._tasks.items() if t.future.cancelled()}
            self._tasks = {ref: t for ref, t in self._tasks.items() if ref not in tasks}
        for task in tasks.values():
            with contextlib.suppress(Exception):
                self._ray.cancel(task.ref, force=True)
        with contextlib.suppress(Exception):
            refs = list(tasks)
            if refs:
                self._ray.wait(refs, num_returns=len(refs), timeout=_END_SECONDS)

    def close(self) -> None:
        """End all tasks and the connection; a cluster that does not answer is left after some seconds."""
        self._closed.set()
        self._news.set()
        ending = threading.Thread(target=self._end, name="ray end", daemon=True)
        ending.start()
        ending.join(3 * _END_SECONDS)
        with contextlib.suppress(Exception):
            self._store.delete(self._proof)

    def _end(self) -> None:
        self.cancel()
        self._watcher.join(_END_SECONDS)
        with contextlib.suppress(Exception):
            self._ray.shutdown()

    def _begin(self, task: _Task) -> None:
        try:
            with _or_gone():
                task.ref = self._remote.remote(*task.call)
                hash(task.ref)  # waits for its id, which a cluster that is gone does not give
        except StorageError as error:
            _set(task.future, None, error)
            return
        task.tries += 1
        with self._lock:
            if not self._tasks:
                self._last_end = time.monotonic()
            if not task.future.cancelled():
                self._tasks[task.ref] = task
        self._news.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                refs = list(self._tasks)
            if not refs:
                self._news.wait()
                self._news.clear()
                continue
            try:
                with self._asking():
                    ready, _ = self._ray.wait(refs, num_returns=1, timeout=_LOOK_SECONDS)
                    if ready:
                        ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
                for ref in ready:
                    self._ended(ref)
                if time.monotonic() - self._last_end > self._say_seconds:
                    with self._asking():
                        self._say_what_is_waited_for(len(refs))
            except Exception as error:
                self._end_all(error)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        self._asked_at = time.monotonic()
        try:
            yield
        finally:
            self._asked_at = 0.0

    def _end_all(self, error: Exception) -> None:
        """Give all tasks the error for which the cluster is left."""
        with self._lock:
            tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            _set(task.future, None, _gone(error))

    def _notice_silence(self) -> None:
        """Leave a cluster that has not answered the watcher for long."""
        while not self._closed.wait(1.0):
            asked_at = self._asked_at
            if asked_at and time.monotonic() - asked_at > self._answer_seconds:
                self._end_all(TimeoutError(f"no answer for {self._answer_seconds:.0f} s"))
                with contextlib.suppress(Exception):
                    self._ray.shutdown()  # ends the watcher's request
                return

    def _ended(self, ref: Any) -> None:
        with self._lock:
            task = self._tasks.pop(ref, None)
        self._last_end = time.monotonic()
        if task is None:
            return
        errors = self._ray.exceptions
        try:
            with self._asking():
                found = Answer(*self._ray.get(ref))
        except (errors.RaySystemError, errors.RpcError, ConnectionError):
            with self._lock:
                self._tasks[ref] = task
            raise
        except errors.RayTaskError as error:  # Ray could not even begin it
            _set(
                task.future,
                None,
                EnvironmentFault(f"a worker of the Ray cluster: {in_words(error.cause or error)}"),
            )
        except errors.RayError as error:
            self._lost_one(task, error)
        else:
            self._take(task, found)

    def _take(self, task: _Task, found: Answer) -> None:
        """Give on what came back."""
        error: Exception | None = None
        value = None
        if found.refused:
            error = EnvironmentFault(found.refused)
        elif found.error:
            error = pickle.loads(found.error)
            if isinstance(error, MemoryError):
                error = self._of_memory(task)
        elif not task.future.cancelled():
            try:
                value = self.files.result(found.result, found.made)
            except Exception as reason:
                error = reason
        _set(task.future, value, error)

    def _lost_one(self, task: _Task, error: Exception) -> None:
        """Do a task again whose worker or node was lost; after the last try that is its error."""
        errors = self._ray.exceptions
        is_memory = isinstance(error, errors.OutOfMemoryError)
        why = (
            "was killed as its node had no memory left" if is_memory else f"was lost ({type(error).__name__})"
        )
        if task.future.cancelled() or self._closed.is_set():
            return
        if task.tries < TRIES:
            self.lost += 1
            log.warning("a worker of the Ray cluster %s in %s; its task is done again", why, task.name)
            self._begin(task)
        elif is_memory:
            _set(task.future, None, self._of_memory(task))
        else:
            _set(
                task.future,
                None,
                WorkerLost(
                    f"a worker of the Ray cluster {why} in {task.name}, {TRIES} times with the same task; "
                    "what was committed before is kept. Look at the nodes, and run the same command again"
                ),
            )

    def _of_memory(self, task: _Task) -> WorkerLost:
        return WorkerLost(
            f"{task.name} found no memory on the Ray cluster, {plural(task.tries, 'time')}; what was "
            f"committed before is kept. Run the same command again with {task.less}, or give the nodes more "
            "memory for each CPU"
        )

    def _say_what_is_waited_for(self, number: int) -> None:
        free = int(self._ray.available_resources().get("CPU", 0))
        self._looked = 0.0
        cpus = self.cpus()
        room = "no room: its CPUs are all taken" if not free else "room"
        room = "no node with a CPU" if not cpus else room
        log.warning(
            "waiting for %s on the Ray cluster, none of which has ended for %d s: it has %s (%d of %s free). "
            "Each task takes one CPU; more nodes, or the end of other work, makes room",
            plural(number, "task"),
            time.monotonic() - self._last_end,
            room,
            free,
            plural(cpus, "CPU"),
        )
        self._last_end = time.monotonic()

    def _send(self, path: Path) -> Any:
        status = path.stat()
        key = (str(path), status.st_mtime_ns, status.st_size)
        with self._lock:
            if key not in self._sent:
                data = np.fromfile(path, np.uint8)
                with _or_gone():
                    self._sent = {key: self._ray.put(data), **dict(list(self._sent.items())[:7])}
            return self._sent[key]


class _Pool:
    """Threads of this process that call functions on the cluster."""

    def __init__(self, cluster: Cluster, threads: Any, less: str) -> None:
        self._cluster, self._threads, self._less = cluster, threads, less

    def in_thread(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        """`function` in one of the threads; it may `call`."""
        found: Future[R] = self._threads.submit(function, *arguments)
        return found

    def call(self, function: Callable[..., R], *arguments: Any, about: str = "") -> R:
        """Return the result of `function`, done on the cluster."""
        return self._cluster.call(function, *arguments, less=self._less)


def _set(future: Future[Any], value: Any, error: Exception | None) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error) if error else future.set_result(value)


@contextlib.contextmanager
def _or_gone() -> Iterator[None]:
    """A request to the cluster, which may go away at any time."""
    try:
        yield
    except Exception as error:
        raise _gone(error) from error


def _gone(error: Exception) -> StorageError:
    if isinstance(error, StorageError):
        return error
    return StorageError(
        f"the Ray cluster went away: {in_words(error)[:300]}. What was committed before is kept: run the "
        "same command again when it is back"
    )


def _work() -> Callable[..., tuple[Any, ...]]:
    """Return what Ray calls: inside of another it travels by value, so a node without Yanmo can say so."""

    def work(asked: tuple[Any, ...], *sent: Any) -> tuple[Any, ...]:
        import socket

        try:
            from yanmo.engine.ray_worker import Asked, answer
        except ImportError as error:
            refused = f"node {socket.gethostname()} of the Ray cluster has no Yanmo of this version: {error}"
            return b"", [], b"", refused
        return tuple(answer(Asked(*asked), *sent))

    return work
