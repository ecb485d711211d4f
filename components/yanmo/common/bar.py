"""A bar of progress on the last line of a person's terminal, below the lines of the log.

One at a time, that of the newest work: how much is done, how fast, how long it still takes. There is none,
and rich, which draws it, is not imported (60 ms), where stderr is a file or a pipe, in a pod, and where the
lines of the log are for programs.

Alternative not taken: rich.live. It hides the cursor, which a process that is killed would leave so, and all
that is to stand above the bar must go through it: the lines of a training's ranks are bytes.
"""

from __future__ import annotations

import atexit
import datetime
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

_FIRST_SECONDS, _SECONDS = 0.5, 0.1
"""How old the work is when it gets a bar, and how often that is drawn."""
_WIDEST, _NARROWEST = 40, 6
"""Columns of the bar itself."""
_ERASE = "\r\x1b[2K"


class _Screen:
    """The last line of stderr."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_persons = False
        self.newest: Bar | None = None
        self.line = ""
        """What is to stand there now."""
        self._may_stand = False
        """Whether anything does. A signal's handler may write between any two of our lines: it is said before
        something is written, and after that was erased."""
        self.drawn_at = 0.0

    def put(self, line: str) -> None:
        """Let this stand there in the place of what does; "" for nothing."""
        self.line = line
        if line:
            if not self.drawn_at:
                atexit.register(self.put, "")
            self.drawn_at, self._may_stand = time.monotonic(), True
            self._write(_ERASE + line)
        elif self._may_stand:
            self._write(_ERASE)
            self._may_stand = False

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError, RuntimeError):  # the terminal is gone; a handler within a write
            sys.stderr.write(text)
            sys.stderr.flush()


_screen = _Screen()


class Bar:
    """The bar of one piece of work, where there is a person to see it."""

    def __init__(self, what: str, total: float) -> None:
        self._what, self._total = what, total
        self._began, self._is_over = time.monotonic(), False
        with _screen.lock:
            _screen.newest = self

    @property
    def is_due(self) -> bool:
        """Return whether somebody would see it now if it were shown."""
        now = time.monotonic()
        is_seen = _screen.is_persons and not self._is_over and _screen.newest in (self, None)
        return is_seen and now - self._began >= _FIRST_SECONDS and now - _screen.drawn_at >= _SECONDS

    def show(self, done: float, amount: str, seconds_left: float, *figures: str) -> None:
        """Draw it, if it is due.

        Args:
            done: of the total.
            amount: the same in words, as `12 of 40 files`.
            figures: what is said besides, the most important first: a narrow terminal has room for no more.
        """
        left = f"{datetime.timedelta(seconds=round(seconds_left))} left"
        with _screen.lock:
            if self.is_due:
                _screen.newest = self
                _screen.put(_drawn(f"{self._what} {amount}", done / max(self._total, 1e-9), [left, *figures]))

    def end(self) -> None:
        """Take it away."""
        with _screen.lock:
            self._is_over = True
            if _screen.newest is self:
                _screen.newest = None
                _screen.put("")


def show_bars(persons: bool) -> None:
    """Say whether lines for a person go to stderr: whether there are bars, where it is a terminal."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_able = os.environ.get("TERM", "dumb") != "dumb" and "KUBERNETES_SERVICE_HOST" not in os.environ
    _screen.is_persons = persons and is_terminal and is_able


@contextmanager
def above_the_bar() -> Iterator[None]:
    """Inside, whole lines may be written to the terminal: the bar stands below them again."""
    with _screen.lock:
        line = _screen.line
        _screen.put("")
        try:
            yield
        finally:
            _screen.put(line)


def _drawn(head: str, share: float, figures: Sequence[str]) -> str:
    from rich.console import Console
    from rich.progress_bar import ProgressBar

    console = Console(file=sys.stderr, highlight=False)
    width = console.width - 1  # what stands in the last column may begin a line
    texts = list(figures)
    while texts and len(head) + _NARROWEST + len(", ".join(texts)) + 2 > width:
        texts.pop()
    tail = ", ".join(texts)
    columns = min(width - len(head) - len(tail) - 2, _WIDEST)
    if columns < _NARROWEST:
        return head[:width]
    with console.capture() as bar:
        console.print(ProgressBar(total=1.0, completed=share, width=columns), end="")
    return f"{head} {bar.get()} {tail}"
