"""What making an output took, written beside it as metrics.prom: wall time, CPU time, energy.

A stage's record begins with its process, so that reading options and importing count, and ends with its work.
What is made after that (an evaluation's baselines) has a record of its own, which begins where the one before
ended. So records can be added: nothing is in two of them, and in none is only what follows the last one,
handing over and the end of the process.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from yanmo.common import fork_server
from yanmo.stage.energy import EnergyMeter
from yanmo.stage.exporter import Telemetry

_STAT = Path("/proc/self/stat")
_START_TIME = 22 - 3
"""Place of `starttime` in /proc/self/stat (proc_pid_stat(5)), counted from the field after the name."""


def process_started() -> float:
    """When this process was started, by the monotonic clock; now, where the system does not say."""
    try:
        fields = _STAT.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        since_boot = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot
    except (OSError, ValueError, IndexError, AttributeError):
        age = 0.0
    return time.monotonic() - max(age, 0.0)


def cpu_seconds() -> float:
    """CPU time of this process so far, of the ended ones that it started, and of its workers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used) + fork_server.cpu_seconds()


@dataclass(frozen=True)
class Counted:
    """Up to where a process's cost is in a record."""

    at: float
    """By the monotonic clock."""
    cpu_seconds: float = 0.0


class CostMeter:
    """Counts what no record holds yet, until it is shown; `close` ends the reading of energy."""

    def __init__(self, counted: Counted) -> None:
        self._counted, self._energy = counted, EnergyMeter()

    def show(self, telemetry: Telemetry) -> Counted:
        """Set the gauges of what was used so far; the next record begins here."""
        now = Counted(time.monotonic(), cpu_seconds())
        seconds = now.at - self._counted.at
        began = time.time() - (time.monotonic() - self._counted.at)
        telemetry.set("start_time_seconds", began)
        telemetry.set("duration_seconds", seconds)
        telemetry.set("cpu_seconds", now.cpu_seconds - self._counted.cpu_seconds)
        for device, joules in self._energy.joules().items():
            telemetry.set("energy_joules", joules, device=device)
        return now

    def close(self) -> None:
        """Stop counting energy."""
        self._energy.close()
