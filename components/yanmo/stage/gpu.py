"""The GPUs of this pod on /metrics, by NVML: for machines where no DCGM exporter watches them.

A reading measures PCIe for 20 ms, twice a card, and may hang with the driver, so it is made in a thread, at
most every five seconds and only while somebody scrapes; an old one is not shown. The driver's critical errors
(XID) are waited for in a thread of their own. No CUDA context is made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from yanmo.stage.exporter import Figure, Telemetry
from yanmo.stage.gpu_metrics import DIRECTIONS, GPU_METRICS, THROTTLES
from yanmo.stage.nvml import Gpu, Nvml
from yanmo.stage.sampling import Sampler

log = logging.getLogger(__name__)
_LOOK_SECONDS = 5.0
_NVLINK, _ALL_LINKS = {"sent": 138, "received": 139}, 0xFFFFFFFF
"""Fields of NVML for KiB of data, without the protocol's own."""
_MEASURED = {metric.name for metric in GPU_METRICS} - {"xid_errors"}


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
        for seen in nvml.xids(gpus, _LOOK_SECONDS):
            if seen:
                gpu, number = seen
                log.warning("GPU %d reports XID %d (docs.nvidia.com/deploy/xid-errors)", gpu, number)
                self.telemetry.add("xid_errors", room="gpu", gpu=str(gpu), xid=str(number))

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
    """Metric, value and labels besides the GPU's own, of one card; None for what it does not support.

    PCIe is counted over 20 ms, which each direction takes; KB of the API are taken for 1,000 bytes.
    """
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
        *(
            ("clock_hertz", gpu.number("GetClockInfo", number, unit=1e6), {"clock": clock})
            for number, clock in ((1, "sm"), (2, "memory"))
        ),
        *(("throttled", throttled >> bit & 1, {"reason": reason}) for bit, reason in reasons),
        *(
            ("pcie_bytes_per_second", gpu.number("GetPcieThroughput", way, unit=1e3), {"direction": name})
            for way, name in enumerate(DIRECTIONS)
        ),
        *(("nvlink_bytes", _nvlink_bytes(gpu, _NVLINK[name]), {"direction": name}) for name in DIRECTIONS),
    ]


def _nvlink_bytes(gpu: Gpu, field: int) -> int | None:
    """Data over all links since the driver was loaded."""
    (value,) = gpu.ask("GetFieldValues", [(field, _ALL_LINKS)]) or (None,)
    return None if value is None or value.nvmlReturn else value.value.ullVal * 1024
