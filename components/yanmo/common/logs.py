"""One log format for all stages, and progress that neither floods a log nor leaves a person waiting.

On a terminal it has a bar as well (bar.py).
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

from yanmo.common.bar import Bar, above_the_bar, show_bars
from yanmo.common.log_lines import PLAIN, form_of, formatter

_PERIOD_SECONDS = 10.0


class _Terminal(logging.StreamHandler[TextIO]):
    """The handler that `setup` made."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, above the bar where there is one."""
        with above_the_bar():
            super().emit(record)


def setup(level: str, stage: str, form: str = "", rank: int | None = None) -> None:
    """Send this process's log to stderr, `HH:MM:SS stage message`, and nobody else's lines there.

    Args:
        form: of the lines (log_lines.py); "" for what the environment says, else plain.
        rank: of a training's worker.
    """
    handler = _Terminal(sys.stderr)
    handler.setFormatter(formatter(form, stage, rank))
    root = logging.getLogger()
    others = [h for h in root.handlers if type(h) not in (logging.StreamHandler, _Terminal)]
    root.handlers[:] = [*others, handler]
    root.setLevel(logging.WARNING)
    for ours in ("yanmo", "yanmo_pipelines", "__main__"):  # a command's own module is run by the last name
        logging.getLogger(ours).setLevel(level.upper())
    is_told = logging.getLogger("yanmo").isEnabledFor(logging.INFO)
    show_bars(is_told and form_of(form) == PLAIN and rank is None)


def human_seconds(seconds: float) -> str:
    """Return a duration as a person says it: `8 s`, `3 min 20 s`, `2 h 05 min`."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def human_bytes(count: float) -> str:
    """Return a size in decimal units: `6.1 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


_progress: dict[str, Progress] = {}


def progress() -> list[Progress]:
    """Return the latest of each kind of work that this process has counted, for its metrics."""
    return list(_progress.values())


def forget_progress() -> None:
    """Begin the list again: what was counted is over, whether it was done or not."""
    for each in _progress.values():
        each.bar.end()
    _progress.clear()


class Progress:
    """Counts work done and logs it at most once per period, with speed and time left; a bar shows it."""

    def __init__(
        self, log: logging.Logger, what: str, total: float, *, unit: str = "", period: float = _PERIOD_SECONDS
    ) -> None:
        self._log, self._what, self._unit, self._period = log, what, unit, period
        self._start = self._last = self._moved = time.monotonic()
        self.done, self.total = 0.0, total
        self.name = f"{what}, {unit}" if unit else what
        self.bar = Bar(what, total)
        _progress[self.name] = self

    @property
    def age(self) -> float:
        """Seconds since something was done."""
        return time.monotonic() - self._moved

    def end(self) -> None:
        """Count the rest as done: it was there already, or there is less than was thought."""
        self.done = self.total
        self.bar.end()

    def add(self, count: float = 1, note: str = "") -> None:
        """Note `count` more done; `note` is appended to the line, should one be due."""
        self.done += count
        now = self._moved = time.monotonic()
        if self.done >= self.total:
            self.bar.end()
        is_line_due = now - self._last >= self._period
        if not is_line_due and not self.bar.is_due:
            return
        speed = self.done / max(now - self._start, 1e-9)
        left = (self.total - self.done) / speed if speed else 0.0
        unit = "" if self._unit == "B" else f" {self._unit or 'items'}"
        amount = f"{self._number(self.done)} of {self._number(self.total)}{unit}"
        self.bar.show(self.done, amount, left, f"{self._number(speed)}{unit}/s")
        if not is_line_due:
            return
        self._last = now
        self._log.info(
            "%s %d of %d %s (%d %%), %.3g %s/s, %s left%s",
            self._what,
            self.done,
            self.total,
            self._unit,
            100 * self.done / max(self.total, 1),
            speed,
            self._unit or "items",
            human_seconds(max(left, 0)),
            f"; {note}" if note else "",
        )

    def _number(self, count: float) -> str:
        if self._unit == "B":
            return human_bytes(count)
        return f"{count:,.0f}" if count >= 100 or count == int(count) else f"{count:.3g}"
