"""One log format for all stages, written and read, and progress that neither floods a log nor leaves a person
waiting; on a terminal it has a bar as well (bar.py).

Lines are `plain` for people, `json` for programs:

    23:41:32 train    step 120 of 450 (26 %): loss 4.211, ...
    {"time": "2026-11-22T23:41:32.512Z", "level": "info", "stage": "train", "rank": 0, "step": 120, ...}

Only plain lines may be followed by others that belong to them, a traceback's; in the other form it is one
more value, `exception`. What a line says in numbers is given as `extra={"figures": {...}}` beside its text.

Whoever reads a stage's log (`submit`, `status`, the supervisor of a training) reads it here, so that a form
of lines is known to all of them or to none.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

from yanmo.common.address import redacted
from yanmo.common.bar import Bar, above_the_bar, show_bars
from yanmo.common.given_file import json_value
from yanmo.common.words import visible

PLAIN, JSON = "plain", "json"
FORMS = (PLAIN, JSON)
VARIABLE = "YANMO_LOG_FORMAT"
"""The variable that gives the form where no option does: of all stages of a cluster, and of children."""
_PLAIN = re.compile(r"(\d\d:\d\d:\d\d) (\w+) +(.*)")
_OWN = ("time", "level", "stage", "rank", "message", "exception")
_ERROR = re.compile(r"(\w+) error (\d+): (.*)")
"""The last line of a stage that failed: `last_line`."""
_LAST_LINE = 80 - len("00:00:00 evaluate ")
_LONGEST_PATH = 20
_PERIOD_SECONDS = 10.0


class PlainLines(logging.Formatter):
    """`HH:MM:SS stage message`; the ranks of a training other than the first name themselves."""

    def __init__(self, stage: str, rank: int | None) -> None:
        whose = f"rank {rank}: " if rank else ""
        super().__init__(f"%(asctime)s {stage:<8} {whose}%(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line without passwords of addresses and without what steers a terminal, tracebacks included."""
        return visible(redacted(super().format(record)))


class ValueLines(logging.Formatter):
    """Lines of JSON; each is one line, whatever is in it."""

    def __init__(self, stage: str, rank: int | None) -> None:
        super().__init__()
        self._fixed = {"stage": stage} if rank is None else {"stage": stage, "rank": rank}

    def format(self, record: logging.LogRecord) -> str:
        """The line without passwords and steering characters; figures stand between stage and message."""
        values: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            **self._fixed,
        }
        figures = getattr(record, "figures", {})
        values |= {name: figure for name, figure in figures.items() if name not in _OWN and _is_one(figure)}
        values["message"] = redacted(record.getMessage())
        if record.exc_info:
            values["exception"] = redacted(self.formatException(record.exc_info))
        return visible(json.dumps(values, ensure_ascii=False, default=str))


def formatter(form: str, stage: str, rank: int | None = None) -> logging.Formatter:
    """Return the formatter of a process's lines.

    Args:
        form: one of `FORMS`; "" for what the environment says, else plain.
        rank: of a training's worker.
    """
    form = form_of(form)
    return PlainLines(stage, rank) if form == PLAIN else ValueLines(stage, rank)


def form_of(form: str) -> str:
    """One of `FORMS`: the one that is asked for, else what the environment says, else plain."""
    form = form or os.environ.get(VARIABLE, PLAIN)
    return form if form in FORMS else PLAIN


def _is_one(figure: Any) -> bool:
    """Return whether it says something: there is one, and JSON can hold it."""
    return figure is not None and not (isinstance(figure, float) and not math.isfinite(figure))


def _utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"


@dataclass(frozen=True)
class Line:
    """A line that one of our processes wrote."""

    time: str
    """HH:MM:SS of a plain line, else UTC, ISO 8601."""
    stage: str
    message: str
    level: str = ""
    """info, warning, error ...; "" for a plain line, which does not say it."""
    values: dict[str, Any] = field(default_factory=dict)
    """What else it says."""


def read_line(text: str) -> Line | None:
    """Return the line in any of its forms; None for another program's, and for a traceback's."""
    plain = _PLAIN.match(text)
    if plain:
        return Line(plain[1], plain[2], plain[3].rstrip())
    values = _values(text)
    own = {name: values.pop(name, "") for name in ("time", "stage", "message", "level")}
    if not all(isinstance(value, str) for value in own.values()) or not own["time"] or not own["stage"]:
        return None
    return Line(**own, values=values)


def _values(text: str) -> dict[str, Any]:
    if text.startswith("{"):
        try:
            found = json_value(text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}
    return {}


@dataclass(frozen=True)
class LastWords:
    """How a stage ended, by its own words."""

    code: int
    """0 where it said nothing of an error."""
    cause: str
    """In one line, whole where the log has it; "" without an error."""
    before: list[str]
    """What it said before that."""


def last_line(stage: str, code: int, cause: str) -> str:
    """Return why a stage ended, in one line that is short and says error.

    KFP shows the end of a log, some 80 characters of a line, and in red what says error.
    """
    words = cause.split()
    for shown in (words, [_end_of(word) for word in words]):
        line = f"{stage} error {code}: {' '.join(shown)}"
        if len(line) <= _LAST_LINE:
            return line
    return line[: _LAST_LINE - 3] + "..."


def _end_of(word: str) -> str:
    """Return a long address or path by its last part, so that the line has room for what is wrong with it."""
    if "/" not in word or len(word) <= _LONGEST_PATH:
        return word
    last = f".../{word.rpartition('/')[2]}"
    return last if len(last) <= _LONGEST_PATH else f"...{last[3 - _LONGEST_PATH :]}"


def last_words_in(messages: list[str]) -> LastWords:
    """Return how the stage ended whose log says this, line by line.

    Its last line may be cut for those who show only some of it; the cause stands above it in one piece, in a
    line of its own or at the end of one.
    """
    error = _ERROR.match(messages[-1]) if messages else None
    if not error:
        return LastWords(0, "", messages)
    before = [one for one in messages[:-1] if not _ERROR.match(one)]
    code = int(error[2])
    pieces = [piece for one in reversed(before) for piece in _tails(one)]
    begin = error[3].removesuffix("...")  # other versions cut elsewhere
    found = [each for each in pieces if last_line(error[1], code, each) == messages[-1]]
    found += [each for each in pieces if each.startswith(begin)]
    return LastWords(code, found[0] if found else error[3], before)


def _tails(line: str) -> Iterator[str]:
    """Yield the line, and what stands in it after each colon: `an earlier try of this run ended: CAUSE`."""
    yield line
    for found in re.finditer(": ", line):
        yield line[found.end() :]


class _Terminal(logging.StreamHandler[TextIO]):
    """The handler that `setup` made."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, above the bar where there is one."""
        with above_the_bar():
            super().emit(record)


def setup(level: str, stage: str, form: str = "", rank: int | None = None) -> None:
    """Send this process's log to stderr, `HH:MM:SS stage message`, and nobody else's lines there.

    Args:
        form: of the lines, one of `FORMS`; "" for what the environment says, else plain.
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
