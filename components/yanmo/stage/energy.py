"""Joules that a process's machine used, where counters can be read: RAPL of the CPU, NVML of the GPUs.

RAPL counts whole sockets, whoever uses them, and its files are root's on most machines (CVE-2020-8694); NVML
counts whole GPUs since the driver was loaded (Volta and newer). RAPL's counters wrap, after half an hour at
worst, so they are read every minute. A virtual machine has neither, as a rule; then nothing is recorded.

Sources: kernel.org, Documentation/power/powercap/powercap.rst; NVML API, nvmlDeviceGetTotalEnergyConsumption.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from yanmo.stage.nvml import Gpu, Nvml

_POWERCAP = Path("/sys/class/powercap")
_PERIOD_SECONDS = 60.0


class EnergyMeter:
    """Counts from its making until it is closed.

    `joules` is {"cpu": ..., "gpu": ...}, with what can be read; {} where nothing can.
    """

    def __init__(
        self,
        powercap: Path = _POWERCAP,
        period_seconds: float = _PERIOD_SECONDS,
        open_nvml: Callable[[], Nvml | None] = Nvml.open,
    ) -> None:
        self._zones = {zone: _zone_range(zone) for zone in _zones(powercap)}
        self._last = {zone: _microjoules(zone) for zone in self._zones}
        self._cpu_microjoules = 0
        self._gpus = _gpus(open_nvml)
        self._gpu_start = _gpu_joules(self._gpus)
        self._lock, self._closed = threading.Lock(), threading.Event()
        if self._zones:
            threading.Thread(target=self._watch, args=(period_seconds,), daemon=True).start()

    def _watch(self, period: float) -> None:
        while not self._closed.wait(period):
            self._read_cpu()

    def _read_cpu(self) -> None:
        with self._lock:
            for zone, top in self._zones.items():
                now, before = _microjoules(zone), self._last[zone]
                if now is not None and before is not None:
                    self._cpu_microjoules += now - before if now >= before else now + top - before
                    self._last[zone] = now

    def joules(self) -> dict[str, float]:
        """Used so far, by device."""
        found = {}
        if self._zones:
            self._read_cpu()
            found["cpu"] = self._cpu_microjoules / 1e6
        now = _gpu_joules(self._gpus)
        if self._gpu_start is not None and now is not None:
            found["gpu"] = now - self._gpu_start
        return found

    def close(self) -> None:
        """Stop counting."""
        self._closed.set()


def _zones(powercap: Path) -> list[Path]:
    """The packages' counters that we may read; cores and memory below them are parts of the same joules."""
    found = sorted(powercap.glob("intel-rapl:[0-9]*"))
    return [zone for zone in found if zone.name.count(":") == 1 and _microjoules(zone) is not None]


def _microjoules(zone: Path) -> int | None:
    try:
        return int((zone / "energy_uj").read_text())
    except (OSError, ValueError):
        return None


def _zone_range(zone: Path) -> int:
    try:
        return int((zone / "max_energy_range_uj").read_text())
    except (OSError, ValueError):
        return 2**32


def _gpus(open_nvml: Callable[[], Nvml | None]) -> list[Gpu]:
    """The GPUs that this process may use; none where there is no driver."""
    nvml = open_nvml() if os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") else None
    return nvml.gpus() if nvml else []


def _gpu_joules(gpus: list[Gpu]) -> float | None:
    """Sum of the GPUs' counters; None where one has none."""
    found = [gpu.number("GetTotalEnergyConsumption", unit=1e-3) for gpu in gpus]
    known = [joules for joules in found if joules is not None]
    return sum(known) if gpus and len(known) == len(found) else None
