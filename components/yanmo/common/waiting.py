"""What this process waits for outside of itself, and for how long: bounded, in its log and in its metrics;
and waits that another thread cancels (`Cancellation`), as an end does not wait for a server that is away.

A store that does not answer and another run of the same output pass, and no new pod mends them: where nobody
sits before the log, waiting is better than an end with 75 that an installation may not retry. How long is
said once for a process and those that it starts, by $YANMO_WAIT_SECONDS; a stage sets it from --wait-seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Literal

from yanmo.common.errors import UsageError
from yanmo.common.logs import human_seconds

log = logging.getLogger(__name__)
Reason = Literal["store", "lease", "retry"]
REASONS: tuple[Reason, ...] = ("store", "lease", "retry")
"""store: its requests fail; lease: another run makes the same output; retry: a pause before another try."""
VARIABLE = "YANMO_WAIT_SECONDS"
_ending = threading.Event()
_here = threading.local()
_LOOK_SECONDS = 0.5
"""How often a wait looks whether the one above it was cancelled."""
_FIRST_LINE_SECONDS, _MOST_BETWEEN_LINES = 30.0, 600.0


def longest_wait() -> float:
    """Return the seconds to wait for one thing outside at most; 0 where a person waits."""
    value = os.environ.get(VARIABLE, "") or "0"
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{VARIABLE}={value!r}: expected a number of seconds") from None


def end_waits() -> None:
    """This process was asked to end: what it still does must not wait."""
    _ending.set()


def is_ending() -> bool:
    """Return whether `end_waits` was called."""
    return _ending.is_set()


class _Ledger:
    """When which waits began; several threads that wait for one thing count once."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        self._lock = threading.Lock()
        self._waiting = 0
        self._since = self._before = 0.0
        self._next_line, self._line_due = 0.0, 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
                self._next_line, self._line_due = _FIRST_LINE_SECONDS, self._since + _FIRST_LINE_SECONDS
            self._waiting += 1

    def end(self) -> None:
        with self._lock:
            self._waiting -= 1
            if self._waiting:
                return
            waited = time.monotonic() - self._since
            self._before += waited
        if waited >= _FIRST_LINE_SECONDS:
            log.warning("waited %s for %s", human_seconds(waited), _WORDS[self.reason])

    def seconds(self) -> float:
        """Return how long it has been waiting now; 0 while it does not."""
        with self._lock:
            return time.monotonic() - self._since if self._waiting else 0.0

    def total(self) -> float:
        """Return all waits of this process so far."""
        with self._lock:
            return self._before + (time.monotonic() - self._since if self._waiting else 0.0)

    def say(self, why: str) -> None:
        """Log why, when a line is due: after 30 s, then ever more rarely."""
        with self._lock:
            now = time.monotonic()
            if now < self._line_due:
                return
            waited = now - self._since
            self._next_line = min(2 * self._next_line, _MOST_BETWEEN_LINES)
            self._line_due = now + self._next_line
        most = longest_wait()
        bound = f"; at most {human_seconds(most)} (--wait-seconds)" if most else ""
        log.warning("waiting for %s for %s: %s%s", _WORDS[self.reason], human_seconds(waited), why, bound)


_WORDS = {"store": "the store", "lease": "another run", "retry": "another try"}
_ledgers = {reason: _Ledger(reason) for reason in REASONS}


class Wait:
    """One wait for one thing, from the first `because` to the end of the context."""

    def __init__(self, reason: Reason) -> None:
        self._ledger = _ledgers[reason]
        self._since: float | None = None

    def because(self, why: str) -> float:
        """Begin to wait, or go on; returns the seconds so far, 0 the first time."""
        if self._since is None:
            self._since = time.monotonic()
            self._ledger.begin()
            return 0.0
        self._ledger.say(why)
        return time.monotonic() - self._since

    def __enter__(self) -> Wait:
        return self

    def __exit__(self, *error: object) -> None:
        if self._since is not None:
            self._since = None
            self._ledger.end()


def seconds_of(reason: Reason) -> float:
    """Return how long this process has been waiting for that now; 0 while it does not."""
    return _ledgers[reason].seconds()


def total_of(*reasons: Reason) -> float:
    """Return seconds of all waits of this process so far, for these reasons together."""
    return sum(_ledgers[reason].total() for reason in reasons)


class Cancellation:
    """Set once, by another thread; requests under it are then given up as soon as a try of theirs fails."""

    def __init__(self, above: Cancellation | None = None) -> None:
        """Args:
        above: the one under which the thread works that has others do a part of its work.
        """
        self._event, self._above = threading.Event(), above

    def set(self) -> None:
        """Cancel them."""
        self._event.set()

    def is_set(self) -> bool:
        """Return whether they were cancelled."""
        return self._event.is_set() or bool(self._above and self._above.is_set())

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until they are cancelled."""
        end = time.monotonic() + seconds
        while not self.is_set() and (left := end - time.monotonic()) > 0:
            self._event.wait(min(left, _LOOK_SECONDS) if self._above else left)


_NEVER = Cancellation()


def current_cancellation() -> Cancellation:
    """Return the one under which this thread makes its requests."""
    found: Cancellation = getattr(_here, "cancellation", _NEVER)
    return found


@contextlib.contextmanager
def under(cancellation: Cancellation) -> Iterator[None]:
    """Requests of this thread are cancelled by `cancellation`."""
    before = current_cancellation()
    _here.cancellation = cancellation
    try:
        yield
    finally:
        _here.cancellation = before
