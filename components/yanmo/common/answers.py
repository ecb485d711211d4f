"""stdout belongs to what a command answers, which a script may read: YAML, JSON, a key.

Libraries print there too: DeepSpeed its memory use, once it trains in bf16; others from C, or in a child
process. A process that serves a command line first takes stdout for itself (`take_stdout`): what anything
writes to file descriptor 1 from then on goes to stderr, and only Python's `print` still reaches the reader.
Around work that calls libraries (`only_answers`) `print` goes to stderr as well, and `answer` alone is read.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

from yanmo.common.bar import above_the_bar
from yanmo.common.words import visible

RESULTS_LATER = "YANMO_RESULTS_LATER"
"""Environment variable that `yanmo run` sets for its stages where it prints their results at its own end."""
_STDOUT, _STDERR = 1, 2
_answers: list[TextIO | None] = []
"""Where `answer` writes: what stdout was when `only_answers` was entered."""
_taken: list[int] = []
"""The descriptor of stdout, once it is taken."""


class _Visible(io.TextIOWrapper):
    """A stream that shows what would steer a terminal; there, its lines stand above the bar of progress."""

    def write(self, text: str) -> int:
        with above_the_bar():
            return super().write(visible(text))


def take_stdout() -> None:
    """Send what C or a child process writes to file descriptor 1 to stderr; `sys.stdout` reaches stdout.

    At the start of a process that is a command; a second call does nothing, nor where either is closed.
    """
    with suppress(OSError, ValueError, AttributeError):  # closed, or not a real file
        if sys.stdout.fileno() != _STDOUT:
            return
        sys.stdout.flush()
        os.fstat(_STDERR)
        before = sys.stdout
        through = bool(getattr(before, "write_through", False))  # python -u, PYTHONUNBUFFERED of our images
        sys.stdout = _Visible(
            os.fdopen(os.dup(_STDOUT), "wb", 0 if through else -1),
            encoding=before.encoding,
            errors=before.errors,
            line_buffering=before.isatty(),
            write_through=through,
        )
        os.dup2(_STDERR, _STDOUT)
        _taken.append(sys.stdout.fileno())


def stdout_for_children() -> int | None:
    """Return the stdout of a child that answers in our place; None for file descriptor 1 as it is."""
    return _taken[0] if _taken else None


@contextmanager
def only_answers() -> Iterator[None]:
    """Inside, what anything prints goes to stderr; `answer` still reaches stdout."""
    _answers.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _answers.pop()


def answer(text: str) -> None:
    """Write a line, or lines, of what was asked for to stdout, at once; nothing where that is closed."""
    stream = _answers[0] if _answers else sys.stdout
    if stream is None:  # as Python's own print does
        return
    stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()


def reader_left() -> None:
    """Send what is left of stdout nowhere: whoever read it has seen enough (`yanmo train --help | head`)."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(text: str) -> None:
    """Print `text`, also where its reader leaves before the end."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        reader_left()
