"""Signals that ask a training to stop are noted, and obeyed after a step."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from yanmo.common import waiting

log = logging.getLogger(__name__)


@contextmanager
def stop_file(path: Path) -> Iterator[list[float]]:
    """While inside, SIGTERM, SIGHUP and Ctrl-C create the file that asks the workers to save and end.

    Yields:
        A list that holds the time of the first request, once there was one.
    """

    def note(is_first: bool) -> None:
        if is_first:
            log.info("asked to stop: saving after this step")
        try:
            path.touch()
        except OSError as error:  # an exception in here could end the stage anywhere
            log.warning("%s cannot be written (%s): the workers end without saving", path, error)

    with stop_requests(note) as asked:
        yield asked


@contextmanager
def stop_requests(on_each: Callable[[bool], None] = lambda is_first: None) -> Iterator[list[float]]:
    """While inside, SIGTERM, SIGHUP and Ctrl-C are noted and not obeyed at once.

    An error that ends the inside after one is not followed by another try: who asked waits for this process
    to end, and kills it in the end.

    Args:
        on_each: called at each request, with whether it is the first; an exception in it could end the
            stage anywhere.

    Yields:
        A list that holds the time of the first request, once there was one.
    """
    asked: list[float] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        is_first = not asked
        if is_first:
            asked.append(time.monotonic())
        on_each(is_first)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # a terminal that is gone; nohup ignores it
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, stop)
    try:
        yield asked
    except BaseException:
        if asked:
            waiting.end_waits()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
