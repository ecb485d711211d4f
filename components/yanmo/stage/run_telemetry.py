"""What a stage shows of its process on /metrics, whatever its work is: workers, disk, GPUs.

A reading may hang with a server that is away or a driver that is stuck. So it is made in a thread of its
own, only while somebody scrapes: an answer never waits for it, and an old one is not shown as new. GPUs are
read by NVML, for machines where no DCGM exporter watches them; no CUDA context is made, and clocks, traffic
and the driver's errors are left to DCGM.

What making an output took (wall time, CPU time, energy) is written beside it as metrics.prom. A stage's
record begins with its process, so that reading options and importing count, and ends with its work. What is
made after that (an evaluation's baselines) has a record of its own, which begins where the one before ended.
So records can be added: nothing is in two of them, and in none is only what follows the last one, handing
over and the end of the process.
"""

from __future__ import annotations

import functools
import logging
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from yanmo.common import child_processes
from yanmo.common.made_by import code
from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Stage
from yanmo.stage.exporter import Figure, Telemetry
from yanmo.stage.nvml import Gpu, Nvml
from yanmo.stage.shared_metrics import GPU_METRICS, THROTTLES
from yanmo.store.opening import StoreSettings, local_folder

log = logging.getLogger(__name__)
T = TypeVar("T")
_PATIENCE_SECONDS = 0.2
"""How long an answer waits for a new measurement."""
_FRESH_SECONDS, _OLD_SECONDS = 5.0, 30.0
"""How old a result may be before another one is made, and to be shown."""
_MEASURED = {metric.name for metric in GPU_METRICS}


def telemetry_of(stage: Stage, options: StageOptions) -> Telemetry:
    """Return the metrics of `stage`; as a context, served from now on as its options say: once in a pod."""
    is_first = os.environ.get("LOCAL_RANK", "0") in ("", "0")
    telemetry = Telemetry(
        stage.name,
        stage.metrics,
        run_id=options.run_id,
        port=options.metrics_port if is_first else -1,
        everywhere=options.metrics_address == "all",
        wait_seconds=options.metrics_wait_seconds,
    )
    telemetry.info(version=code(), channel=options.channel)
    disk = Sampler(functools.partial(_disk_of, options))

    def measure() -> None:
        telemetry.set("workers", child_processes.count(), room="stage")
        usage = disk.latest()
        size = usage and usage.used + usage.free  # without what is kept for root
        for name, value in (("disk_bytes", size), ("disk_free_bytes", usage and usage.free)):
            if value is None:
                telemetry.gone(name, room="stage")
            else:
                telemetry.set(name, value, room="stage")

    telemetry.source(measure, lasts=True)
    if options.gpu_metrics and telemetry.is_served and GPU_METRICS[0] in stage.metrics:
        show_gpus(telemetry)
    return telemetry


def _disk_of(options: StageOptions) -> shutil._ntuple_diskusage:
    """Of the disk that holds the work in progress: the store's own where it is a folder."""
    own = local_folder(options.store) if options.store else None
    folder = own or StoreSettings.of(options).scratch_folder
    here = (place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(next(here))


class Sampler(Generic[T]):
    """The latest result of `measure`, which may hang or fail."""

    def __init__(
        self,
        measure: Callable[[], T],
        fresh_seconds: float = _FRESH_SECONDS,
        old_seconds: float = _OLD_SECONDS,
    ) -> None:
        self._measure, self._fresh, self._old = measure, fresh_seconds, old_seconds
        self._lock, self._made = threading.Lock(), threading.Event()
        self._at = float("-inf")
        self._value: T | None = None
        self._busy, self._told = False, ""

    def latest(self) -> T | None:
        """Return the result; None where it is too old, as `measure` hangs or fails."""
        with self._lock:
            if not self._busy and time.monotonic() - self._at > self._fresh:
                self._busy = True
                self._made.clear()
                threading.Thread(target=self._run, daemon=True, name="sampler").start()
        self._made.wait(_PATIENCE_SECONDS)
        with self._lock:
            return self._value if time.monotonic() - self._at <= self._old else None

    def _run(self) -> None:
        value: T | None = None
        try:
            value = self._measure()
        except Exception as error:  # the rest is served; the last result soon counts as too old
            if repr(error) != self._told:
                self._told = repr(error)
                log.warning("a metric cannot be measured: %r", error)
        with self._lock:
            self._busy = False
            if value is not None:
                self._at, self._value = time.monotonic(), value
        self._made.set()


def show_gpus(
    telemetry: Telemetry,
    open: Callable[[], Nvml | None] = Nvml.open,
    fresh_seconds: float = _FRESH_SECONDS,
    old_seconds: float = _OLD_SECONDS,
) -> None:
    """Show the GPUs that `open` finds; nothing here waits for the driver."""
    known: list[tuple[Gpu, dict[str, str]]] | None = None

    def read() -> list[Figure]:
        nonlocal known
        if known is None:
            known = _gpus_of(open())
        found: list[Figure] = []
        for place, (gpu, info) in enumerate(known):
            labels = {"gpu": str(place)}
            found.append(("info", 1, labels | info))
            found += [
                (name, value, labels | more) for name, value, more in figures_of(gpu) if value is not None
            ]
        return found

    sampler = Sampler(read, fresh_seconds, old_seconds)
    telemetry.source(lambda: telemetry.replace(_MEASURED, sampler.latest() or [], room="gpu"), lasts=True)


def _gpus_of(nvml: Nvml | None) -> list[tuple[Gpu, dict[str, str]]]:
    """Return each GPU and what it says of itself, read once: a card that is lost no longer says who it is."""
    if nvml is None:
        return []
    driver = nvml.driver()
    return [
        (gpu, {"uuid": gpu.ask("GetUUID") or "", "name": gpu.ask("GetName") or "", "driver": driver})
        for gpu in nvml.gpus()
    ]


def figures_of(gpu: Gpu) -> list[tuple[str, float | None, dict[str, str]]]:
    """Metric, value and labels besides the GPU's own, of one card; None for what it does not support."""
    memory, rates = gpu.ask("GetMemoryInfo"), gpu.ask("GetUtilizationRates")
    throttled = gpu.ask("GetCurrentClocksThrottleReasons")
    reasons = [] if throttled is None else list(enumerate(THROTTLES))
    return [
        ("utilization_ratio", rates and rates.gpu / 100, {}),
        ("memory_used_bytes", memory and memory.used, {}),
        ("memory_bytes", memory and memory.total, {}),
        ("power_watts", gpu.number("GetPowerUsage", unit=1e-3), {}),
        ("power_limit_watts", gpu.number("GetEnforcedPowerLimit", unit=1e-3), {}),
        ("energy_joules", gpu.number("GetTotalEnergyConsumption", unit=1e-3), {}),
        ("temperature_celsius", gpu.ask("GetTemperature", 0), {}),
        *(("throttled", throttled >> bit & 1, {"reason": reason}) for bit, reason in reasons),
    ]


def cpu_seconds() -> float:
    """CPU time of this process so far, of the ended ones that it started, and of its workers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used) + child_processes.cpu_seconds()


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
