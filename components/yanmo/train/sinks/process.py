"""Starts the sinks of a training and ends them: a process each, so that none can slow or end a training.

A library that hangs, leaks, crashes or waits for its server at its end does so in a process that nobody waits
for longer than a moment. It costs that process' memory (docs/reference/train.md says how much).
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from yanmo.train import job
from yanmo.train.options.measuring_options import sinks_in

log = logging.getLogger(__name__)


class Sinks:
    """The sinks of a training; as a context they follow it."""

    last_seconds, stopped_seconds = 30.0, 5.0
    """How long they may take at the end for what they have not handed over, all together; and where the
    training was stopped, or failed."""

    def __init__(self, given: str, folder: Path, run: Mapping[str, Any], log: Mapping[str, str]):
        """Args:
        given: `NAME=TARGET,...`; "" for none.
        folder: where the training writes metrics.jsonl.
        run: what TrainingRun holds.
        log: log_level and log_format.
        """
        self._given, self._told = sinks_in(given), {"folder": str(folder), "run": dict(run), **log}
        self._started: list[tuple[str, subprocess.Popen[str]]] = []
        self.is_done = False
        """Whether the training has come to its end, and does not go on later."""

    def __enter__(self) -> Self:
        for name, target in self._given:
            told = {**self._told, "name": name, "target": target, "parent": os.getpid()}
            command = [sys.executable, "-m", "yanmo.train.sinks", json.dumps(told, default=str)]
            self._started.append((name, subprocess.Popen(command, stdin=subprocess.PIPE, text=True)))
        return self

    def __exit__(self, *error: object) -> None:
        """Let them hand over the rest; end those that do not come to an end."""
        for _, process in self._started:
            with suppress(OSError):  # it is gone
                assert process.stdin
                process.stdin.write("done\n" if self.is_done else "left\n")
                process.stdin.close()
        seconds = self.last_seconds if self.is_done else self.stopped_seconds
        until = time.monotonic() + seconds
        for name, process in self._started:
            try:
                process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                what = (
                    f"the last ones are not there; the model's {job.METRICS} has them all"
                    if self.is_done
                    else "it gets them when the training goes on"
                )
                log.warning("sink %s did not take all figures within %.0f s: %s", name, seconds, what)
                process.kill()
                process.wait()
