"""Functions called in processes beside this one: one pool, one answer to a worker that is killed.

Each worker has a pipe to this process, and a thread here waits for its answer. So it is known what a lost
worker was doing and how it ended; an error keeps its type, or at least its exit code where it cannot be
pickled; and whatever ends the work here ends the workers, that may be in the middle of a file. The standard
library's pool was the alternative: it takes an error that does not unpickle for a killed process.

Workers come from a fork server: a clean process that imports what they need once (`preload`) and forks them.
Forking this process, with its lease and metrics threads, may deadlock; spawning costs every worker the
imports: beside the fork server, 8 workers of curate took 3.9 times as long to start and 3.6 times the memory,
2 workers 1.7 and 1.5 times (2 cores, Python 3.11).

The system counts the workers' CPU time for the fork server, and the server's for us only once it has ended:
`cpu_seconds` asks for it before, and at the end of this process the server is ended, so that whoever waits
for us is told everything.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from yanmo.common.errors import WorkerLost, exit_code, in_words
from yanmo.common.parent import end_with_parent

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

FEW = 8
"""With no more tasks than this `ordered_map` does them in this process, unless there are workers already."""

LESS = "fewer --workers"
_STUCK_SECONDS = 2.0
"""A worker starts in milliseconds; what takes longer waits for a process that does nothing."""
_context = multiprocessing.get_context("forkserver")
_shared: dict[int, Workers] = {}
"""Number -> workers that stay for the phases that follow."""
_alive: set[int] = set()
"""Process ids of the workers that have not ended."""
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
    _context.set_forkserver_preload(list(modules))


def cpu_seconds() -> float:
    """CPU time of the fork server and of all workers, those that have ended too; 0 where there is no /proc.

    `resource.getrusage` counts none of it before the server has ended.
    """
    return sum(_used(pid) for pid in [*_alive, *_server()])


def _server() -> list[int]:
    """The fork server's process id; the standard library has no public name for it."""
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


@atexit.register
def _end_server() -> None:
    """End the workers that stay, and wait for the server, which counts for us from then on."""
    if os.getpid() != _PID:  # a fork of it, whose workers these are not
        return
    for workers in _shared.values():
        workers.close(at_once=True)
    stop = getattr(forkserver._forkserver, "_stop", None)  # type: ignore[attr-defined]
    if _alive or not _server() or stop is None:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            stop()

    waiting = threading.Thread(target=wait, daemon=True)
    try:
        waiting.start()
    except (
        RuntimeError
    ):  # from Python 3.12 on, no thread begins at exit: the server ends by itself, uncounted
        return
    waiting.join(_END_SECONDS)


class Workers:
    """At most `count` processes, each started when there is work for it.

    A context that ends them: in peace, or at once where an error leaves it. May be used by several threads.
    """

    def __init__(self, count: int, less: str = LESS) -> None:
        """Args:
        less: what needs less memory, for the advice where one was killed.
        """
        self.count, self.less = count, less
        self._free = threading.BoundedSemaphore(count)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(count, "workers")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, error: object, *more: object) -> None:
        self.close(at_once=error is not None)

    def start(self) -> None:
        """Start all of them now, while this process does something else."""
        for _ in range(self.count):
            self._threads.submit(self._start_one)

    def submit(self, function: Callable[..., R], *arguments: Any, about: str = "") -> Future[R]:
        """`call`, which this process does not wait for."""
        return self.in_thread(lambda: self.call(function, *arguments, about=about))

    def in_thread(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        """`function` in one of as many threads of this process as there are workers; it may `call` one."""
        return self._threads.submit(function, *arguments)

    def call(self, function: Callable[..., R], *arguments: Any, about: str = "") -> R:
        """What `function` gives in a worker; waits for one that is free.

        Args:
            function: importable by name; its arguments and its result are pickled.
            about: what it works on, for the message should the worker be lost.

        Raises:
            WorkerLost: the worker was killed, or found no memory. What the function raised is raised here.
        """
        asked = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
        with self._free:
            worker = self._take()
            answer = worker.ask(asked)
            if answer is None:
                raise self._lost(worker.end(), function, about)
            with self._lock:
                self._idle.append(worker)
        result, error = pickle.loads(answer)
        if isinstance(error, MemoryError):
            raise self._lost("found no memory", function, about) from error
        if error is not None:
            raise error
        return cast(R, result)

    def close(self, at_once: bool = False) -> None:
        """End the workers.

        Args:
            at_once: kills those at work, as what they write may be where the caller cleans up; else what was
                begun is finished.
        """
        if at_once:
            if not self._lock.acquire(timeout=_STUCK_SECONDS):  # a thread waits for a server that is stopped
                _kill_fork_server()
                self._lock.acquire()
            self._closed = True
            workers = list(self._all)
            self._lock.release()
            for worker in workers:
                worker.process.kill()
        self._threads.shutdown(cancel_futures=True)
        with self._lock:
            self._closed = True
            for worker in self._all:
                worker.end()

    def _take(self) -> _Worker:
        with self._lock:
            return self._idle.pop() if self._idle else self._new()

    def _start_one(self) -> None:
        with self._lock:
            if len(self._all) < self.count:
                self._idle.append(self._new())

    def _new(self) -> _Worker:
        if self._closed:
            raise RuntimeError("these workers were ended")
        worker = _Worker()
        self._all.append(worker)
        return worker

    def _lost(self, how: str, function: Callable[..., Any], about: str) -> WorkerLost:
        return WorkerLost(
            f"a worker process {how} in {function.__name__}{about and f' of {about}'}; what it was making is "
            "lost, what was committed before is kept. Most often memory is short: run the same command "
            f"again, and where it happens again, with {self.less} (there were {self.count} workers)"
        )


def _kill_fork_server() -> None:
    """End the process that starts workers; the next worker starts another one."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)  # type: ignore[attr-defined]
    if pid:
        os.kill(pid, signal.SIGKILL)


class _Worker:
    """A process and this end of the pipe to it."""

    def __init__(self) -> None:
        self._pipe, theirs = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(theirs,), daemon=True)
        try:
            self.process.start()
        except (OSError, EOFError) as error:
            self._pipe.close()
            raise WorkerLost(
                f"no worker process could be started ({in_words(error)}): the process that starts them was "
                "killed, or this machine allows no more. What was committed before is kept: run the same "
                "command again, and where it happens again, with fewer --workers"
            ) from error
        finally:
            theirs.close()
        self._pid = self.process.pid or 0
        _alive.add(self._pid)

    def ask(self, asked: bytes) -> bytes | None:
        """The answer; None where the process has ended."""
        try:
            self._pipe.send_bytes(asked)
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            return None

    def end(self) -> str:
        """Wait until it has ended, and say how it did: it does when the pipe is closed."""
        self._pipe.close()
        self.process.join()
        _alive.discard(self._pid)
        code = self.process.exitcode or 0
        return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"


def _serve(pipe: Connection) -> None:
    """What a worker does: calls what it is asked, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    while True:
        try:
            asked = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        pipe.send_bytes(_answer(asked))


def _answer(asked: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(asked)
        return pickle.dumps((function(*arguments), None), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps((None, portable(error)))


def portable(error: Exception) -> Exception:
    """`error`, or where it does not survive pickling the nearest that does, with its words and exit code.

    It has the traceback for a note, which does not survive either.
    """
    text, where = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    number = [error.errno] if isinstance(error, OSError) and error.errno else []
    for kind in (None, *type(error).__mro__):
        try:
            found: Any = error if kind is None else kind(*number, text)
            found.add_note(f"In a worker process:\n{where}")
            again = pickle.loads(pickle.dumps(found))
        except Exception:
            continue
        if isinstance(again, Exception) and exit_code(again) == exit_code(error) and str(error) in str(again):
            return again
    return RuntimeError(text)


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


def start_workers(workers: int) -> None:
    """Start the workers that will be needed soon, while this process does something else."""
    if workers > 1 and workers not in _shared:
        _workers(workers).start()


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
