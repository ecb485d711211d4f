"""A driver that answers as NVML's reference says. Synthetic: no card was asked.

Names, units and codes are those of the NVML API Reference and of nvml.h (3: not supported, 4: no permission,
15: lost); the figures are invented, of the size of an H100's. Structures are those of NVIDIA's
bindings, which `bindings_of` gives with this driver below them.
A test may change `unsupported` and `lost`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from types import ModuleType
from typing import Any

NOT_SUPPORTED, NO_PERMISSION, LOST = 3, 4, 15
UUIDS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000")
NUMBERS = {
    "nvmlDeviceGetPowerUsage": 312_500,  # mW
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_000,  # mJ
}


def bindings_of(driver: Driver) -> ModuleType:
    """A copy of `pynvml` of its own, which loads no library."""
    importlib.import_module("pynvml")  # it looks itself up in sys.modules
    spec = importlib.util.find_spec("pynvml")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.nvmlLib = driver
    return module


def number_of(handle: Any) -> int:
    """A handle's number, from 1."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _point(answer: Any, number: int) -> None:
    """Make a pointer that is handed in by reference a handle of that number."""
    ctypes.c_void_p.from_buffer(answer._obj).value = number


class Driver:
    """In the place of the library that ctypes loads."""

    def __init__(self, cards: int = 2) -> None:
        self.cards, self.hangs = cards, threading.Event()
        self.hangs.set()
        self.unsupported: set[str] = set()
        self.lost: set[int] = set()
        """Numbers of cards that fell off the bus."""
        self.calls: list[str] = []
        self.limits = dict.fromkeys(range(1, cards + 1), 700_000)
        """Milliwatts of each card."""
        self.may_set_limits = True

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            self.hangs.wait()
            if name in self.unsupported:
                return NOT_SUPPORTED
            of_card = name.startswith("nvmlDevice") and "Handle" not in name and "Count" not in name
            if of_card and number_of(arguments[0]) in self.lost:
                return LOST
            return getattr(self, f"_{name}", self._number)(name, *arguments)

        return call

    def _number(self, name: str, handle: Any, answer: Any) -> int:
        answer._obj.value = NUMBERS[name] * number_of(handle)
        return 0

    def _nvmlInitWithFlags(self, name: str, flags: Any) -> int:
        return 0

    def _nvmlErrorString(self, name: str, code: Any) -> bytes:
        return b"Insufficient Permissions" if code == NO_PERMISSION else b"an error"

    def _nvmlDeviceGetCount_v2(self, name: str, answer: Any) -> int:
        answer._obj.value = self.cards
        return 0

    def _nvmlDeviceGetHandleByIndex_v2(self, name: str, index: Any, answer: Any) -> int:
        if index.value >= self.cards:
            return 6  # NVML_ERROR_NOT_FOUND
        _point(answer, index.value + 1)
        return 0

    def _nvmlDeviceGetHandleByUUID(self, name: str, uuid: Any, answer: Any) -> int:
        text = uuid.value.decode()
        if text not in UUIDS:
            return 6
        _point(answer, UUIDS.index(text) + 1)
        return 0

    def _nvmlDeviceGetName(self, name: str, handle: Any, text: Any, length: Any) -> int:
        text.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def _nvmlDeviceGetUUID(self, name: str, handle: Any, text: Any, length: Any) -> int:
        text.value = UUIDS[number_of(handle) - 1].encode()
        return 0

    def _nvmlSystemGetDriverVersion(self, name: str, text: Any, length: Any) -> int:
        text.value = b"575.57.08"
        return 0

    def _nvmlDeviceGetUtilizationRates(self, name: str, handle: Any, answer: Any) -> int:
        answer._obj.gpu, answer._obj.memory = 97, 40  # percent
        return 0

    def _nvmlDeviceGetMemoryInfo(self, name: str, handle: Any, answer: Any) -> int:
        answer._obj.total, answer._obj.used, answer._obj.free = 80 << 30, 60 << 30, 20 << 30
        return 0

    def _nvmlDeviceGetTemperature(self, name: str, handle: Any, sensor: Any, answer: Any) -> int:
        assert sensor.value == 0, "NVML_TEMPERATURE_GPU"
        answer._obj.value = 64
        return 0

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, name: str, handle: Any, answer: Any) -> int:
        answer._obj.value = 0x4 | 0x40  # power cap, hardware thermal
        return 0

    def _nvmlDeviceGetPowerManagementLimit(self, name: str, handle: Any, answer: Any) -> int:
        answer._obj.value = self.limits[number_of(handle)]
        return 0

    def _nvmlDeviceSetPowerManagementLimit(self, name: str, handle: Any, limit: Any) -> int:
        if not self.may_set_limits:
            return NO_PERMISSION
        self.limits[number_of(handle)] = limit.value
        return 0
