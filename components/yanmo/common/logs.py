"""One log format for all stages, and progress that neither floods a log nor leaves a person waiting."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

from yanmo.common.answers import visible
from yanmo.common.errors import redacted

_PERIOD_SECONDS = 10.0


class _Safe(logging.Formatter):
    """Lines without passwords of addresses, tracebacks included, and without what steers a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(redacted(super().format(record)))


class _Terminal(logging.StreamHandler[TextIO]):
    """The handler that `setup` made."""


def setup(level: str, stage: str) -> None:
    """Send this process's log to stderr as `HH:MM:SS stage message`, and nobody else's lines there."""
    handler = _Terminal(sys.stderr)
    handler.setFormatter(_Safe(f"%(asctime)s {stage:<8} %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    others = [h for h in root.handlers if type(h) not in (logging.StreamHandler, _Terminal)]
    root.handlers[:] = [*others, handler]
    root.setLevel(logging.WARNING)
    for ours in ("yanmo", "yanmo_pipelines"):
        logging.getLogger(ours).setLevel(level.upper())


def human_seconds(seconds: float) -> str:
    """A duration as a person says it: `8 s`, `3 min 20 s`, `2 h 05 min`."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def human_bytes(count: float) -> str:
    """A size in decimal units: `6.1 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


class Progress:
    """Counts work done and logs it at most once per period, with speed and time left."""

    def __init__(
        self, log: logging.Logger, what: str, total: float, *, unit: str = "", period: float = _PERIOD_SECONDS
    ) -> None:
        self._log, self._what, self._total, self._unit, self._period = log, what, total, unit, period
        self._start = self._last = time.monotonic()
        self.done = 0.0

    def add(self, count: float = 1, note: str = "") -> None:
        """Note `count` more done; `note` is appended to the line, should one be due."""
        self.done += count
        now = time.monotonic()
        if now - self._last < self._period:
            return
        self._last = now
        speed = self.done / (now - self._start)
        left = (self._total - self.done) / speed if speed else 0.0
        self._log.info(
            "%s %d of %d %s (%d %%), %.3g %s/s, %s left%s",
            self._what,
            self.done,
            self._total,
            self._unit,
            100 * self.done / max(self._total, 1),
            speed,
            self._unit or "items",
            human_seconds(max(left, 0)),
            f"; {note}" if note else "",
        )
