"""What this process has asked of its stores: requests, and tries that failed. For /metrics.

An operation on a folder counts as a request. Processes that it starts count for themselves.
"""

from __future__ import annotations

import threading
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


_lock = threading.Lock()
_traffic = {kind: Traffic() for kind in KINDS}


def request(kind: Kind) -> None:
    """Count a try of a request."""
    with _lock:
        _traffic[kind].requests += 1


def failed(kind: Kind) -> None:
    """Count a try that failed in a way that may pass."""
    with _lock:
        _traffic[kind].retries += 1


def so_far() -> dict[Kind, Traffic]:
    """Return what was counted until now, by kind."""
    with _lock:
        return {kind: replace(counted) for kind, counted in _traffic.items()}
