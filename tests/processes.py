"""Processes as /proc shows them: who lives, and what a killed command has left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


def fields_of(pid: int | str) -> list[str]:
    """State (Z: it has ended, unwaited for), parent, process group and so on; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_alive(pid: int | str) -> bool:
    """Whether a process has not ended; one that nobody has waited for yet has."""
    return fields_of(pid)[:1] not in ([], ["Z"])


def members(group: int) -> dict[int, int]:
    """The living processes of a process group, and the parent of each."""
    found = {path.name: fields_of(path.name) for path in Path("/proc").glob("[0-9]*")}
    return {int(p): int(f[1]) for p, f in found.items() if f and int(f[2]) == group and f[0] != "Z"}


def survivors(group: int, seconds: float = 60) -> dict[int, int]:
    """The members of a group that still live after a moment; returns as soon as there is none."""
    deadline = time.monotonic() + seconds
    while (found := members(group)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def listening(pid: int) -> list[int]:
    """The ports on which a process listens on the loopback."""
    try:
        own = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    except OSError:
        return []
    return [int(r[1].rpartition(":")[2], 16) for r in rows if r[3] == "0A" and f"socket:[{r[9]}]" in own]
