"""A stage's log: shown as it comes, and its end is kept, as it says why the stage failed."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO

from yanmo_pipelines.processes import Processes

_LOOK_SECONDS = 0.1
_KEPT_BYTES = 16384


def run_and_keep(processes: Processes, command: Sequence[str]) -> tuple[int, str]:
    """Run a command to its end: its exit code (negative: killed by a signal) and the end of its log.

    Its stderr is a file, not a pipe: it can be written to after this process was killed as well.

    Raises:
        Stopped: a signal came, before or meanwhile.
    """
    with tempfile.TemporaryFile(buffering=0) as log, _shown(log):
        ended = processes.run(command, stderr=log)
        said = os.pread(log.fileno(), _KEPT_BYTES, max(0, os.fstat(log.fileno()).st_size - _KEPT_BYTES))
    return ended.exit_code, said.decode("utf-8", "replace")


@contextlib.contextmanager
def _shown(log: IO[bytes]) -> Iterator[None]:
    """Copy to stderr what is written to `log`, as it comes, until all of it is shown."""
    is_over = threading.Event()
    follower = threading.Thread(target=_follow, args=(log.fileno(), is_over), name="log", daemon=True)
    follower.start()
    try:
        yield
    finally:
        is_over.set()
        follower.join()


def _follow(log: int, is_over: threading.Event) -> None:
    shown = 0
    while True:
        was_over = is_over.wait(_LOOK_SECONDS)
        while data := os.pread(log, 1 << 16, shown):
            shown += len(data)
            with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it any more
                sys.stderr.buffer.write(data)
                sys.stderr.flush()
        if was_over:
            return
