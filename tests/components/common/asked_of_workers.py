"""Functions for worker processes, which cannot import a test module."""

import os
import signal
import sys
import time

from yanmo.common.errors import DataError, EnvironmentFault, StorageError, UsageError


class TwoWords(DataError):
    """Pickles, and does not unpickle."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


class HoldsALock(EnvironmentFault):
    """Does not pickle."""

    def __init__(self, text: str) -> None:
        import threading

        super().__init__(text)
        self.lock = threading.Lock()


class Numbered(OSError):
    """Does not unpickle, and its exit code follows from its number."""

    def __init__(self, number: int, what: str, where: str) -> None:
        super().__init__(number, f"{what} in {where}")


ENDS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segmentation fault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit 137": lambda: os._exit(137),
    "sys.exit": lambda: sys.exit(3),
    "no memory": lambda: bytearray(1 << 62),
}
ERRORS = {
    "usage": lambda: UsageError("--steps 0"),
    "two words": lambda: TwoWords("no poem", "line 3"),
    "lock": lambda: HoldsALock("no GPU"),
    "read-only": lambda: Numbered(30, "cannot write", "a folder"),
    "missing": lambda: FileNotFoundError(2, "No such file", "a.parquet"),
    "storage": lambda: StorageError("the store is away"),
    "local class": lambda: type("Odd", (UsageError,), {})("odd"),
    "bug": lambda: KeyError("ours"),
}


def end(how: str, text: str = "") -> str:
    """What `how` says, or the text."""
    if how in ENDS:
        ENDS[how]()
    return text


def fail(how: str) -> None:
    raise ERRORS[how]()


def touch_later(path: str, seconds: float) -> None:
    """Say that it began, wait, and write."""
    with open(f"{path}.begun", "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    time.sleep(seconds)
    with open(path, "w", encoding="utf-8") as file:
        file.write("late")


def one_thread(number: int) -> tuple[int, int]:
    return number, os.getpid()


def spend(seconds: float) -> None:
    """Work for so many seconds of CPU time, however long that takes."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
