"""`--profile N`: a torch profiler trace of N steps, for chrome://tracing or https://ui.perfetto.dev.

Begins after the first steps, which warm up; the file is stored next to the model as a record. Profiling slows
its own steps down (the speed in metrics.jsonl shows it) and changes no number.
"""

from __future__ import annotations

import gzip
import logging
import shutil
from pathlib import Path
from typing import Any

import torch

from yanmo.common.words import plural
from yanmo.train.job import TRACE

log = logging.getLogger(__name__)
_WARM_STEPS = 3


class Trace:
    """The trace of one rank; does nothing when no step is asked for."""

    def __init__(self, folder: Path, steps: int, device: torch.device) -> None:
        self._folder, self._steps, self._device = folder, steps, device
        self._done = self._recorded = 0
        self._profiler: Any = None

    def begin_step(self) -> None:
        """Before each step."""
        if not self._steps or self._profiler or self._done != _WARM_STEPS:
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities)
        self._profiler.start()

    def end_step(self) -> None:
        """After each step; writes the file after the last one wanted."""
        if not self._steps:
            return
        self._done += 1
        self._recorded += bool(self._profiler)
        if self._recorded == self._steps:
            self.finish()

    def finish(self) -> None:
        """Write what there is: the training ends."""
        if not self._profiler:
            return
        self._profiler.stop()
        plain = self._folder / "trace.json"
        self._profiler.export_chrome_trace(str(plain))
        with plain.open("rb") as source, gzip.open(self._folder / f".tmp-{TRACE}", "wb", 5) as target:
            shutil.copyfileobj(source, target)
        (self._folder / f".tmp-{TRACE}").replace(self._folder / TRACE)
        plain.unlink()
        log.info("profiled %s", plural(self._recorded, "step"))
        self._profiler, self._steps = None, 0
