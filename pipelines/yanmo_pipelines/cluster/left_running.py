"""A command that follows what runs in a cluster without it: whatever ends the command leaves that alone."""

from __future__ import annotations

import logging
from collections.abc import Callable

from yanmo_pipelines.cluster.refusals import NoAnswer

log = logging.getLogger(__name__)


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
