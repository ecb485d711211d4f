"""The GPUs' power limit during training: a quieter machine by day, full power by night.

It is a hint: setting it needs administrator rights, which few pods have. Where the driver refuses, a warning
says so and training goes on at the present limit. The old limit is restored at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from yanmo.stage.nvml import Gpu, Nvml

log = logging.getLogger(__name__)


@contextmanager
def power_limit(watts: int, nvml: Nvml | None = None) -> Iterator[None]:
    """While inside, every GPU of this process is asked to draw at most `watts`; 0 asks nothing."""
    nvml = nvml or (Nvml.open() if watts else None)
    gpus = nvml.gpus() if watts and nvml else []
    before = [(gpu, old) for gpu in gpus if (old := gpu.ask("GetPowerManagementLimit")) is not None]
    if watts and not before:
        log.warning("a power limit of %d W was asked for, and no GPU here has one; no effect", watts)
    changed = [(gpu, old) for gpu, old in before if _set(gpu, 1000 * watts)]
    try:
        yield
    finally:
        for gpu, old in changed:
            _set(gpu, old)


def _set(gpu: Gpu, milliwatts: int) -> bool:
    try:
        gpu.bindings.nvmlDeviceSetPowerManagementLimit(gpu.handle, milliwatts)
    except gpu.bindings.NVMLError as error:
        log.warning("a GPU keeps its power limit: %s", error)
        return False
    return True
