"""What this process has asked of its stores: requests, tries that failed, seconds, bytes. For /metrics.

An operation on a folder counts as a request. Processes that it starts count for themselves.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["read", "write", "stat", "list", "copy", "delete"]
KINDS: tuple[Kind, ...] = ("read", "write", "stat", "list", "copy", "delete")


@dataclass
class Traffic:
    """Of one kind of request."""

    requests: int = 0
    """Tries included."""
    retries: int = 0
    """Tries that failed and may pass: made again, or given up."""
    seconds: float = 0.0
    """Without waits between tries; parallel requests add up."""
    bytes: int = 0


_lock = threading.Lock()
_traffic = {kind: Traffic() for kind in KINDS}


@contextlib.contextmanager
def request(kind: Kind) -> Iterator[None]:
    """One try of a request: count it and its time."""
    began = time.monotonic()
    try:
        yield
    finally:
        with _lock:
            _traffic[kind].requests += 1
            _traffic[kind].seconds += time.monotonic() - began


def failed(kind: Kind) -> None:
    """Count a try that failed in a way that may pass."""
    with _lock:
        _traffic[kind].retries += 1


def carried(kind: Kind, count: int) -> None:
    """Count bytes that went to the store or came from it."""
    with _lock:
        _traffic[kind].bytes += count


def so_far() -> dict[Kind, Traffic]:
    """Return what was counted until now, by kind."""
    with _lock:
        return {kind: replace(counted) for kind, counted in _traffic.items()}
