"""What making an output took, written beside it as metrics.prom: wall time, CPU time, energy.

A stage's record begins with its process, so that reading options and importing count, and ends with its work.
What is made after that (an evaluation's baselines) has a record of its own, which begins where the one before
ended. So records can be added: nothing is in two of them, and in none is only what follows the last one,
handing over and the end of the process.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

from yanmo.common import fork_server
from yanmo.stage.energy import EnergyMeter
from yanmo.stage.exporter import Telemetry


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
    """Counts what no record holds yet, until it is shown."""

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
        joules = self._energy.joules()
        if joules is not None:
            telemetry.set("energy_joules", joules, device="gpu")
        return now
