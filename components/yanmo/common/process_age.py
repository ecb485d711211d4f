"""When this process was started: before Python, and so before what it imports."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STAT = Path("/proc/self/stat")
_START_TIME = 22 - 3
"""Place of `starttime` in /proc/self/stat (proc_pid_stat(5)), counted from the field after the name."""


def process_started() -> float:
    """Return when this process was started, by the monotonic clock; now, where the system does not say."""
    try:
        fields = _STAT.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        since_boot = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot
    except (OSError, ValueError, IndexError, AttributeError):
        age = 0.0
    return time.monotonic() - max(age, 0.0)
