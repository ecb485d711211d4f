"""Joules that the GPUs of a process used, by NVML, which counts whole GPUs since the driver was loaded.

Volta and newer count (nvmlDeviceGetTotalEnergyConsumption). A processor's counters (RAPL) are root's on most
machines (CVE-2020-8694), and no virtual machine or pod has them: they are not read.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from yanmo.stage.nvml import Nvml


class EnergyMeter:
    """Counts from its making on."""

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
