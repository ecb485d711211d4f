"""Functions called in processes beside this one: one pool, one answer to a worker that is killed.

Each worker has a pipe to this process, and a thread here waits for its answer. So it is known what a lost
worker was doing and how it ended; an error keeps its type, or at least its exit code where it cannot be
pickled; and whatever ends the work here ends the workers, that may be in the middle of a file. The standard
library's pool was the alternative: it takes an error that does not unpickle for a killed process.

Many small tasks in order: `ordered_map`. Where the processes come from: `child_processes`.
"""

from __future__ import annotations

import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

from yanmo.common import child_processes
from yanmo.common.child_processes import end_with_parent
from yanmo.common.errors import WorkerLost, exit_code, in_words
from yanmo.common.threads import thread_pool

R = TypeVar("R")

LESS = "fewer --workers"
_STUCK_SECONDS = 2.0
"""A worker starts in milliseconds; what takes longer waits for a process that does nothing."""


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
        self._threads = thread_pool(count, "workers")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, error: object, *more: object) -> None:
        self.close(at_once=error is not None)

    def submit(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        """`call`, which this process does not wait for."""
        return self.in_thread(self.call, function, *arguments)

    def in_thread(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        """`function` in one of as many threads of this process as there are workers; it may `call` one."""
        return self._threads.submit(function, *arguments)

    def call(self, function: Callable[..., R], *arguments: Any, about: str = "") -> R:
        """Return the result of `function` in a worker; waits for one that is free.

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
                child_processes.kill()
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


_asking_ends = threading.Lock()
"""How a process ended can be read once: of two threads that ask, one would hear 255. A start asks of all."""


class _Worker:
    """A process and this end of the pipe to it."""

    def __init__(self) -> None:
        self._pipe, theirs = child_processes.CONTEXT.Pipe()
        self.process = child_processes.CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
        try:
            with _asking_ends:
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
        child_processes.ALIVE.add(self._pid)

    def ask(self, asked: bytes) -> bytes | None:
        """Return the answer; None where the process has ended."""
        try:
            self._pipe.send_bytes(asked)
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            return None

    def end(self) -> str:
        """Wait until it has ended, and say how it did: it does when the pipe is closed."""
        self._pipe.close()
        wait([self.process.sentinel])
        with _asking_ends:
            self.process.join()
        child_processes.ALIVE.discard(self._pid)
        code = self.process.exitcode or 0
        return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"


def _serve(pipe: Connection) -> None:
    """Call what the worker is asked, until the pipe is closed."""
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
