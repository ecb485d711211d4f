"""Requests to this process to stop: SIGTERM, SIGHUP and Ctrl-C, noted and not obeyed at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from yanmo.common import waiting


@contextmanager
def stop_requests(on_each: Callable[[bool], None] = lambda is_first: None) -> Iterator[list[float]]:
    """While inside, a request to stop is only noted. An error that ends the inside after one is not followed
    by another try: who asked waits for this process to end, and kills it in the end.

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
            waiting.hurry()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
