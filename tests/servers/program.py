"""A server program of this machine in a folder of its own, while a context lasts."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

OPEN = build_opener(ProxyHandler({})).open
"""Opens an address of this machine, past any proxy."""
_END_SECONDS = 20.0


@contextmanager
def started(command: Sequence[str], folder: Path, ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process, once `ready`, an address of it, is answered; what it says is in FOLDER/PROGRAM.log.

    Raises:
        RuntimeError: it ended before that; says its last words.
    """
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while not _answers(ready):
            if process.poll() is not None:
                words = log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{command[0]} ended with {process.returncode}: {words}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(address: str) -> bool:
    try:
        with OPEN(address, timeout=10):
            return True
    except HTTPError as error:
        return error.code == 401  # it wants a password
    except OSError:
        return False
