"""Measurements that may hang, for /metrics: of a disk on a server that is away, of a driver that is stuck.

They are made in a thread of their own, only when somebody scrapes, so that an answer never waits for them and
an old one is not shown as new.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")
_PATIENCE_SECONDS = 0.2
"""How long an answer waits for a new measurement."""


class Sampler(Generic[T]):
    """The latest result of `measure`."""

    def __init__(
        self, measure: Callable[[], T], fresh_seconds: float = 5.0, old_seconds: float = 30.0
    ) -> None:
        """Args:
        fresh_seconds: how old a result may be before another one is made.
        old_seconds: how old a result may be to be shown.
        """
        self._measure, self._fresh, self._old = measure, fresh_seconds, old_seconds
        self._lock, self._made = threading.Lock(), threading.Event()
        self._at = float("-inf")
        self._value: T | None = None
        self._busy, self._told = False, ""

    def latest(self) -> T | None:
        """Return the result; None where it is too old, as `measure` hangs or fails."""
        with self._lock:
            if not self._busy and time.monotonic() - self._at > self._fresh:
                self._busy = True
                self._made.clear()
                threading.Thread(target=self._run, daemon=True, name="sampler").start()
        self._made.wait(_PATIENCE_SECONDS)
        with self._lock:
            return self._value if time.monotonic() - self._at <= self._old else None

    def _run(self) -> None:
        value: T | None = None
        try:
            value = self._measure()
        except Exception as error:  # the rest is served; the last result soon counts as too old
            if repr(error) != self._told:
                self._told = repr(error)
                log.warning("a metric cannot be measured: %r", error)
        with self._lock:
            self._busy = False
            if value is not None:
                self._at, self._value = time.monotonic(), value
        self._made.set()
