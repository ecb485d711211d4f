"""Requests of one thread that another may cancel: an end does not wait for a server that is away."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

_here = threading.local()
_LOOK_SECONDS = 0.5
"""How often a wait looks whether the one above it was cancelled."""


class Cancellation:
    """Set once; requests made under it are then given up as soon as a try of theirs fails."""

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


def current() -> Cancellation:
    """Return the one under which this thread makes its requests."""
    found: Cancellation = getattr(_here, "cancellation", _NEVER)
    return found


@contextlib.contextmanager
def under(cancellation: Cancellation) -> Iterator[None]:
    """Requests of this thread are cancelled by `cancellation`."""
    before = current()
    _here.cancellation = cancellation
    try:
        yield
    finally:
        _here.cancellation = before
