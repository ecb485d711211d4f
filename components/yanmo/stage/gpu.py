"""The GPUs of this pod on /metrics, by NVML: for machines where no DCGM exporter watches them.

A reading may hang with the driver, so it is made in a thread, at most every five seconds and only while
somebody scrapes; an old one is not shown. No CUDA context is made. Clocks, traffic and the driver's errors
are left to DCGM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from yanmo.stage.exporter import Figure, Telemetry
from yanmo.stage.gpu_metrics import GPU_METRICS, THROTTLES
from yanmo.stage.nvml import Gpu, Nvml
from yanmo.stage.sampling import Sampler

_LOOK_SECONDS = 5.0
_MEASURED = {metric.name for metric in GPU_METRICS}


@dataclass
class GpuMetrics:
    """Shows the GPUs that `open` finds."""

    telemetry: Telemetry
    open: Callable[[], Nvml | None] = Nvml.open
    old_seconds: float = 30.0
    """How old a reading may be to be shown."""
    fresh_seconds: float = _LOOK_SECONDS
    """How old a reading may be before another one is made."""
    _gpus: list[tuple[Gpu, dict[str, str]]] = field(default_factory=list)
    _sampler: Sampler[list[Figure]] = field(init=False)

    def start(self) -> None:
        """Begin; nothing here waits for the driver."""
        self._sampler = Sampler(self._read, self.fresh_seconds, self.old_seconds)
        threading.Thread(target=self._begin, daemon=True, name="gpus").start()

    def _begin(self) -> None:
        nvml = self.open()
        gpus = nvml.gpus() if nvml else []
        if nvml is None or not gpus:
            return
        driver = nvml.driver()
        # Read once: a card that is lost no longer says who it is.
        self._gpus = [
            (gpu, {"uuid": gpu.ask("GetUUID") or "", "name": gpu.ask("GetName") or "", "driver": driver})
            for gpu in gpus
        ]
        self.telemetry.source(self._show, lasts=True)

    def _show(self) -> None:
        self.telemetry.replace(_MEASURED, self._sampler.latest() or [], room="gpu")

    def _read(self) -> list[Figure]:
        found: list[Figure] = []
        for place, (gpu, info) in enumerate(self._gpus):
            labels = {"gpu": str(place)}
            found.append(("info", 1, labels | info))
            found += [
                (name, value, labels | more) for name, value, more in figures_of(gpu) if value is not None
            ]
        return found


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
