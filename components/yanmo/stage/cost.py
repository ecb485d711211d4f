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
from collections.abc import Callable
from dataclasses import dataclass

from yanmo.common import fork_server
from yanmo.stage.exporter import Telemetry
from yanmo.stage.nvml import Nvml


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


class EnergyMeter:
    """Joules that the GPUs of a process used, by NVML, which counts whole GPUs since the driver was loaded.

    Volta and newer count. A processor's counters (RAPL) are root's on most machines (CVE-2020-8694), and no
    virtual machine or pod has them: they are not read.
    """

    def __init__(self, open_nvml: Callable[[], Nvml | None] = Nvml.open) -> None:
        nvml = open_nvml() if os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") else None
        self._gpus = nvml.gpus() if nvml else []
        self._start = self._counted()

    def joules(self) -> float | None:
        """Return what the GPUs that this process may use took so far; None where one does not count."""
        now = self._counted()
        return None if now is None or self._start is None else now - self._start

    def _counted(self) -> float | None:
        found = [gpu.number("GetTotalEnergyConsumption", unit=1e-3) for gpu in self._gpus]
        known = [joules for joules in found if joules is not None]
        return sum(known) if found and len(known) == len(found) else None


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
