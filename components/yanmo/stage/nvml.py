"""NVIDIA's management library, as far as metrics and energy need it: by ctypes, from the driver itself.

The driver brings libnvidia-ml.so.1 into every container that has a GPU. Its Python bindings (nvidia-ml-py)
would be one more package of the images for these few calls. Source of names, structures and numbers: NVML API
Reference (docs.nvidia.com/deploy/nvml-api) and nvml.h. What a card does not support is None.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterator
from typing import Any

log = logging.getLogger(__name__)
LIBRARY = "libnvidia-ml.so.1"
REASONS = {
    "gpu_idle": 0x1,
    "application_clocks": 0x2,
    "software_power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "sync_boost": 0x10,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "power_brake": 0x80,
    "display_clocks": 0x100,
}
"""nvmlClocksEventReasons: why clocks are lower than they could be."""
_SM, _MEMORY = 1, 2
_SENT, _RECEIVED = 0, 1
_NVLINK_SENT, _NVLINK_RECEIVED, _ALL_LINKS = 138, 139, 0xFFFFFFFF
_XID, _TIMEOUT = 0x8, 10


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Field(ctypes.Structure):
    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_uint),
        ("result", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Gpu:
    """One GPU."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library, self.handle = library, handle

    def _ask(self, function: str, answer: Any, *arguments: Any) -> Any:
        """What a function writes into `answer`; None where the card or the driver does not support it."""
        call = getattr(self._library, function, None)
        if call is None or call(self.handle, *arguments, ctypes.byref(answer)):
            return None
        return answer

    def _number(self, function: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int | None:
        found = self._ask(function, kind(), *arguments)
        return None if found is None else int(found.value)

    def _text(self, function: str) -> str:
        text = ctypes.create_string_buffer(96)
        call = _call(self._library, function)
        return (
            ""
            if call is None or call(self.handle, text, ctypes.c_uint(96))
            else text.value.decode(errors="replace")
        )

    @property
    def name(self) -> str:
        return self._text("nvmlDeviceGetName")

    @property
    def uuid(self) -> str:
        return self._text("nvmlDeviceGetUUID")

    def utilization(self) -> float | None:
        """Share of the last sample period in which a kernel ran."""
        found = self._ask("nvmlDeviceGetUtilizationRates", _Utilization())
        return None if found is None else found.gpu / 100

    def memory(self) -> tuple[int, int] | None:
        """Bytes used, and in all."""
        found = self._ask("nvmlDeviceGetMemoryInfo", _Memory())
        return None if found is None else (int(found.used), int(found.total))

    def watts(self) -> float | None:
        return _scaled(self._number("nvmlDeviceGetPowerUsage"), 1e-3)

    def watts_limit(self) -> float | None:
        return _scaled(self._number("nvmlDeviceGetEnforcedPowerLimit"), 1e-3)

    def joules(self) -> float | None:
        """Since the driver was loaded; Volta and newer."""
        return _scaled(self._number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong), 1e-3)

    def celsius(self) -> int | None:
        return self._number("nvmlDeviceGetTemperature", ctypes.c_uint(0))

    def hertz(self, clock: str) -> float | None:
        """Of the clock `sm` or `memory`, now."""
        kind = ctypes.c_uint(_SM if clock == "sm" else _MEMORY)
        return _scaled(self._number("nvmlDeviceGetClockInfo", kind), 1e6)

    def throttled(self) -> dict[str, bool] | None:
        """Whether its clocks are held back now, by reason."""
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)
        return None if bits is None else {reason: bool(bits & bit) for reason, bit in REASONS.items()}

    def pcie_bytes_per_second(self, direction: str) -> float | None:
        """Over the last 20 ms, which this call takes; KB of the API are taken for 1,000 bytes."""
        which = ctypes.c_uint(_SENT if direction == "sent" else _RECEIVED)
        return _scaled(self._number("nvmlDeviceGetPcieThroughput", which), 1e3)

    def nvlink_bytes(self, direction: str) -> int | None:
        """Data over all links since the driver was loaded."""
        which = _NVLINK_SENT if direction == "sent" else _NVLINK_RECEIVED
        field = _Field(field=which, scope=_ALL_LINKS)
        call = getattr(self._library, "nvmlDeviceGetFieldValues", None)
        if call is None or call(self.handle, ctypes.c_int(1), ctypes.byref(field)) or field.result:
            return None
        return int(field.value) * 1024


def _call(library: Any, name: str) -> Any:
    """The driver's function, by its newer name or the one before; None where an old driver has neither."""
    return getattr(library, name, None) or getattr(library, name.removesuffix("_v2"), None)


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


class Nvml:
    """The library, once it is open."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @classmethod
    def open(cls, name: str = LIBRARY) -> Nvml | None:
        """The driver's own; None on a machine without it."""
        try:
            library = ctypes.CDLL(name)
        except OSError:
            return None
        begin = _call(library, "nvmlInit_v2")
        result = begin() if begin else "no nvmlInit"
        if result:
            log.debug("NVML cannot be used: error %s", result)
            return None
        return cls(library)

    def gpus(self) -> list[Gpu]:
        """The GPUs that this process may use (CUDA_VISIBLE_DEVICES), in its order."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        count = ctypes.c_uint()
        if visible is None:
            count_gpus = _call(self._library, "nvmlDeviceGetCount_v2")
            if count_gpus is None or count_gpus(ctypes.byref(count)):
                return []
            names = list(map(str, range(count.value)))
        else:
            names = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
        found = (self._handle(name) for name in names)
        return [Gpu(self._library, handle) for handle in found if handle is not None]

    def _handle(self, name: str) -> ctypes.c_void_p | None:
        handle = ctypes.c_void_p()
        if name.isdigit():
            by_index = _call(self._library, "nvmlDeviceGetHandleByIndex_v2")
            failed = by_index is None or by_index(ctypes.c_uint(int(name)), ctypes.byref(handle))
        else:
            failed = self._library.nvmlDeviceGetHandleByUUID(
                ctypes.c_char_p(name.encode()), ctypes.byref(handle)
            )
        return None if failed else handle

    def driver(self) -> str:
        """The driver's version."""
        text = ctypes.create_string_buffer(80)
        ask = _call(self._library, "nvmlSystemGetDriverVersion")
        return "" if ask is None or ask(text, ctypes.c_uint(80)) else text.value.decode(errors="replace")

    def xids(self, gpus: list[Gpu], seconds: float) -> Iterator[tuple[int, int] | None]:
        """(Place in `gpus`, number) of each critical error that the driver reports; None after a wait.

        Ends where the driver cannot report them.
        """
        names = ("nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2")
        create, register, wait = (_call(self._library, name) for name in names)
        events = ctypes.c_void_p()
        if not (create and register and wait) or create(ctypes.byref(events)):
            return
        for gpu in gpus:
            if register(gpu.handle, ctypes.c_ulonglong(_XID), events):
                return
        places = {gpu.handle.value: place for place, gpu in enumerate(gpus)}
        while True:
            event = _Event()  # the older function writes its first three fields
            result = wait(events, ctypes.byref(event), ctypes.c_uint(int(1000 * seconds)))
            if result == _TIMEOUT:
                yield None
            elif result:
                return
            else:
                yield places.get(event.device, 0), int(event.data)
