"""NVIDIA's management library, by its own bindings, as far as metrics, energy and the power limit need it.

The driver brings libnvidia-ml.so.1 into every container that has a GPU. The bindings take 80 ms to import
(AMD EPYC, 2026-11-28), so a machine without it does not import them. Names and numbers: NVML API Reference
(docs.nvidia.com/deploy/nvml-api).
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

log = logging.getLogger(__name__)
LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    bindings: Any
    handle: Any

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return what `nvmlDevice<function>` answers; None where card or driver do not support it."""
        return _asked(self.bindings, f"nvmlDevice{function}", self.handle, *arguments)

    def number(self, function: str, *arguments: Any, unit: float) -> float | None:
        """Return what `ask` says of a number, in base units: `unit` is what it counts in."""
        found = self.ask(function, *arguments)
        return None if found is None else found * unit


def _asked(bindings: Any, function: str, *arguments: Any) -> Any:
    try:
        return getattr(bindings, function)(*arguments)
    except bindings.NVMLError:
        return None


@dataclass(frozen=True)
class Nvml:
    """The library, once it is open."""

    bindings: Any
    """The module `pynvml`."""

    @classmethod
    def open(cls) -> Nvml | None:
        """Return the driver's own library; None on a machine without it."""
        try:
            ctypes.CDLL(LIBRARY)
        except OSError:
            return None
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            log.debug("NVML cannot be used: %s", error)
            return None
        return cls(pynvml)

    def gpus(self) -> list[Gpu]:
        """Return the GPUs that this process may use, in its order.

        As CUDA reads CUDA_VISIBLE_DEVICES: a UUID may be cut short, and with the first name of no GPU the
        list ends (CUDA C++ Programming Guide, "CUDA Environment Variables").
        """
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        count = _asked(self.bindings, "nvmlDeviceGetCount") or 0
        every = [_asked(self.bindings, "nvmlDeviceGetHandleByIndex", n) for n in range(count)]
        if visible is None:
            return [Gpu(self.bindings, handle) for handle in every if handle is not None]
        found = map(partial(self._named, every), map(str.strip, visible.split(",")))
        return [Gpu(self.bindings, handle) for handle in takewhile(lambda one: one is not None, found)]

    def _named(self, every: list[Any], name: str) -> Any:
        if name.isdigit():
            return every[int(name)] if int(name) < len(every) else None
        handle = _asked(self.bindings, "nvmlDeviceGetHandleByUUID", name)  # also a part of a GPU (MIG)
        if handle is not None or not name.startswith("GPU-"):
            return handle
        uuids = [_asked(self.bindings, "nvmlDeviceGetUUID", one) or "" for one in every]
        return next((one for one, uuid in zip(every, uuids, strict=True) if uuid.startswith(name)), None)

    def driver(self) -> str:
        """Return the driver's version."""
        return _asked(self.bindings, "nvmlSystemGetDriverVersion") or ""


@contextmanager
def power_limit(nvml: Nvml | None = None, count: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield what asks the first GPUs of this process to draw at most so many watts; 0 for their own limits.

    It needs administrator rights, which few pods have: where the driver refuses, a warning says so and the
    training goes on at the present limit. The old limit is restored at the end.

    Args:
        count: of the GPUs; None for all.
    """
    changed: list[tuple[Gpu, int]] | None = None
    now = 0

    def limit(watts: int) -> None:
        nonlocal nvml, changed, now
        if watts == now:
            return
        now = watts
        if changed is not None:  # also one that has refused since: else its old limit would not come back
            for gpu, old in changed:
                _set_power(gpu, 1000 * watts or old)
            return
        nvml = nvml or Nvml.open()
        limits = [(gpu, gpu.ask("GetPowerManagementLimit")) for gpu in (nvml.gpus()[:count] if nvml else [])]
        before = [(gpu, old) for gpu, old in limits if old is not None]
        if not before:
            log.warning("a power limit of %d W was asked for, and no GPU here has one; no effect", watts)
        changed = [(gpu, old) for gpu, old in before if _set_power(gpu, 1000 * watts)]

    try:
        yield limit
    finally:
        limit(0)


def _set_power(gpu: Gpu, milliwatts: int) -> bool:
    try:
        gpu.bindings.nvmlDeviceSetPowerManagementLimit(gpu.handle, milliwatts)
    except gpu.bindings.NVMLError as error:
        log.warning("a GPU keeps its power limit: %s", error)
        return False
    return True
