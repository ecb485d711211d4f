"""A driver that answers as NVML's reference says, in the place of `pynvml`. Synthetic: no card was asked.

Names are those of NVIDIA's bindings, units those of the NVML API Reference; the figures are invented, of the
size of an H100's. A test may change `unsupported`, `lost`, `limits` and `may_set_limits`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

UUIDS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000")


class NVMLError(Exception):
    """As the bindings raise it."""


class Driver:
    """The bindings; a handle is a card's number, from 1."""

    NVMLError = NVMLError

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

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml") or not hasattr(pynvml, name):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            self.hangs.wait()
            of_card = name.startswith("nvmlDevice") and "HandleBy" not in name and arguments
            if name in self.unsupported or (of_card and arguments[0] in self.lost):
                raise NVMLError("Not Supported")
            return self._answer(name, *arguments)

        return call

    def _answer(self, name: str, *arguments: Any) -> Any:
        card = arguments[0] if arguments else 0
        if name == "nvmlDeviceGetHandleByIndex" and card < self.cards:
            return card + 1
        if name == "nvmlDeviceGetHandleByUUID" and card in UUIDS:
            return UUIDS.index(card) + 1
        if "HandleBy" in name:
            raise NVMLError("Not Found")
        if name == "nvmlDeviceSetPowerManagementLimit":
            if not self.may_set_limits:
                raise NVMLError("Insufficient Permissions")
            self.limits[card] = arguments[1]
            return None
        if name == "nvmlDeviceGetTemperature":
            assert arguments[1] == pynvml.NVML_TEMPERATURE_GPU
        return {
            "nvmlInit": None,
            "nvmlSystemGetDriverVersion": "575.57.08",
            "nvmlDeviceGetCount": self.cards,
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetUUID": UUIDS[card - 1] if isinstance(card, int) else "",
            "nvmlDeviceGetPowerUsage": 312_500 * card,  # mW
            "nvmlDeviceGetEnforcedPowerLimit": 700_000 * card,
            "nvmlDeviceGetPowerManagementLimit": self.limits.get(card),
            "nvmlDeviceGetTotalEnergyConsumption": 5_000_000 * card,  # mJ
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),  # percent
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 << 30, used=60 << 30, free=20 << 30),
            "nvmlDeviceGetTemperature": 64,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4 | 0x40,  # power cap, hardware thermal
        }[name]
