"""What a start waits for: logged once a minute until a step is done, or something later has begun.

A start of seconds is the rule; a slow disk, a compiler, a name that does not resolve or a rank that never
comes make it minutes. What each rank does is written next to its heartbeat; a rank without one was never
started.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from yanmo.common.logs import human_seconds
from yanmo.train.health.watchdog import STARTS, TRAINING, Silence, doings

log = logging.getLogger(__name__)
_SAY_SECONDS = 60.0


class Startup:
    """The time from the start of the workers to the end of the first step."""

    def __init__(
        self,
        folder: Path,
        ranks: int,
        last_line: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        first_rank: int = 0,
    ) -> None:
        """Args:
        first_rank: of this node's.
        last_line: gives the last thing that a worker wrote.
        """
        self._folder, self._last_line = folder, last_line
        self._ranks = range(first_rank, first_rank + ranks)
        self._silence = Silence(clock)
        self._next = _SAY_SECONDS
        self._first_steps: dict[int, str] = {}
        self.is_over = False

    def look(self) -> float:
        """Log what is waited for, if that is due; call it regularly.

        Returns:
            Seconds without any rank, not counting pauses in which nobody looked.
        """
        if self.is_over:
            return 0.0
        found = doings(self._folder)
        if any(self._is_beyond(rank, doing) for rank, doing in found.items()):
            self.is_over = True
            return 0.0
        seconds = self._silence.look(None)
        if seconds >= self._next:
            self._next += _SAY_SECONDS
            log.info("no step is done after %s: %s", human_seconds(seconds), self._waits(found))
        return 0.0 if found else seconds

    def _is_beyond(self, rank: int, doing: str) -> bool:
        """Whether a rank has gone beyond its start and the first step it was seen in."""
        if rank not in self._first_steps and doing in STARTS:
            return False
        first = self._first_steps.setdefault(rank, doing)
        return doing != first or not doing.startswith(TRAINING)

    def _waits(self, found: dict[int, str]) -> str:
        """What each rank does, in words, and the last line of the log where a rank is missing."""
        by_doing: dict[str, list[int]] = {}
        for rank in self._ranks:
            by_doing.setdefault(found.get(rank, "not started yet"), []).append(rank)
        text = "; ".join(
            f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}: {doing}"
            for doing, ranks in by_doing.items()
        )
        last = self._last_line()
        missing = len(found) < len(self._ranks)
        return f"{text}. Last line of the workers: {last}" if missing and last else text
