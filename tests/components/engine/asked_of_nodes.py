"""Functions that tests ask of a Ray cluster; its workers import this file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

from yanmo.common.errors import DataError


def which(number: int) -> tuple[int, int]:
    """The number, and the process that was asked."""
    time.sleep(0.05)
    return number, os.getpid()


def slow(number: int) -> int:
    time.sleep(0.3)
    return number


def begun(task: tuple[str, float]) -> float:
    """Leave a note, then work for so many seconds."""
    note, seconds = task
    with open(note, "a", encoding="utf-8") as file:  # no Path: it is no file of the store
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return seconds


def write_or_die(task: tuple[int, Path, str, int]) -> Path:
    """Write a file of an attempt; the first so many tries are killed in the middle of it."""
    number, out, notes, kills = task
    with out.open("wb") as file:
        file.write(b"first half")
        file.flush()
        for kill in range(kills):
            note = f"{notes}/{number}-{kill}"
            if not os.path.exists(note):
                with open(note, "w", encoding="utf-8"):
                    os.kill(os.getpid(), signal.SIGKILL)
        file.write(f", second half {number}".encode())
    return out


def size_of(path: Path) -> int:
    return len(path.read_bytes())


def total(path: Path) -> int:
    return int(np.load(path).sum())


def fail(number: int) -> int:
    if number == 7:
        raise DataError(f"document {number} is not one")
    return number


def too_large(number: int) -> int:
    raise MemoryError(f"{number}")
