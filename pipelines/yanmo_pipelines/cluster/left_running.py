"""A command that follows what runs in a cluster without it: whatever ends the command leaves that alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from yanmo_pipelines.cluster.refusals import NoAnswer

log = logging.getLogger(__name__)
T = TypeVar("T")
_AWAY_SECONDS = 900.0
"""How long a server may be away while something is followed: its restart is no reason to leave."""


def patiently(look: Callable[[], T], what: str, look_seconds: float) -> T:
    """Return what `look` gives; a server that is away is waited for.

    Raises:
        NoAnswer: it was away for too long.
    """
    since = 0.0
    while True:
        try:
            return look()
        except NoAnswer as error:
            if not since:
                since = time.monotonic()
                log.warning("%s; %s goes on without us, waiting for it", error, what)
            if time.monotonic() - since > _AWAY_SECONDS:
                raise
            time.sleep(look_seconds)


def left_running(follow: Callable[[], int], what: str, command: str) -> int:
    """The exit code of `follow`; 130 after Ctrl-C.

    Args:
        what: what goes on without us, "the run".
        command: follows it again.

    Raises:
        NoAnswer: as `follow` does, and how to follow it again.
    """
    again = f"{what} goes on; follow it again by `{command}`"
    try:
        return follow()
    except NoAnswer as error:
        raise NoAnswer(f"{error}; {again}") from error
    except KeyboardInterrupt:
        log.warning("interrupted; %s", again)
        return 130
    except SystemExit:  # SIGTERM
        log.warning("stopped; %s", again)
        raise
