"""Metrics of the steps since the last line of metrics.jsonl, and sums since step 0.

Losses stay tensors on the device, one per step, until somebody needs them: a line, a checkpoint. Then they
are gathered at once and added up step by step, so that a run cut anywhere gives the same last digits.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from yanmo.train.backends.process_group import Collectives


@dataclass(frozen=True)
class PendingStep:
    """A step whose loss was not read yet."""

    step: int
    nats: Tensor
    """Summed loss of this rank's rows (scalar, on the device)."""
    targets: int
    """Targets of the global batch."""
    first_sample: int
    moved: Tensor
    """Whether it moved the weights (bool scalar, on the device; the same on every rank)."""


@dataclass(frozen=True)
class StepResult:
    """A step whose loss was read."""

    step: int
    loss: float
    """Mean over the targets of the global batch, nats per token."""
    first_sample: int
    good: bool
    """Whether it moved the weights and its loss is finite."""


@dataclass
class Interval:
    """Sums of good steps since the last line; in the checkpoints, so that a resumed run's lines are equal."""

    nats: float = 0.0
    targets: int = 0
    samples: int = 0
    seconds: float = 0.0
    """Wall seconds of training since step 0, without checkpoints and validations."""
    cpu_seconds: float = 0.0
    """CPU seconds of all ranks in training steps since step 0: comparable on a busy machine."""
    tokens: int = 0
    """Predicted tokens since step 0."""
    line_seconds: float = 0.0
    """Value of `seconds` at the last line."""

    @property
    def loss(self) -> float | None:
        """Mean loss of the interval in nats per token; None when none of its steps was good."""
        return self.nats / self.targets if self.targets else None

    def begin_line(self) -> None:
        """Start the next interval."""
        self.nats, self.targets, self.samples, self.line_seconds = 0.0, 0, 0, self.seconds


@dataclass
class Ledger:
    """Collects steps and reads them together."""

    collectives: Collectives
    batch_rows: int
    interval: Interval = field(default_factory=Interval)
    _pending: list[PendingStep] = field(default_factory=list)
    _cpu_seconds: float = 0.0

    def add(self, pending: PendingStep, cpu_seconds: float) -> None:
        """Note a step; reads nothing from the device."""
        self._pending.append(pending)
        self._cpu_seconds += cpu_seconds

    def drop(self) -> None:
        """Forget the steps that were not read: they will be made again."""
        self._pending.clear()
        self._cpu_seconds = 0.0

    def wait(self) -> float:
        """Wait until the device has done the steps that were not read, and count it as training.

        On a CUDA device a step's own seconds are those of launching its kernels.

        Returns:
            The seconds.
        """
        if not self._pending or not self._pending[-1].nats.is_cuda:
            return 0.0
        began = time.monotonic()
        torch.cuda.current_stream(self._pending[-1].nats.device).synchronize()
        seconds = time.monotonic() - began
        self.interval.seconds += seconds
        return seconds

    def read(self) -> list[StepResult]:
        """Return the steps since the last call that had a target, in order, and into the interval; all ranks
        call it together."""
        if not self._pending:
            return []
        numbers = torch.stack([torch.stack([p.nats, p.moved.float()]) for p in self._pending])
        nats, moved = numbers.cpu().double().T
        *sums, cpu = self.collectives.sums(torch.cat([nats, torch.tensor([self._cpu_seconds]).double()]))
        found = []
        for pending, total, has_moved in zip(self._pending, sums, moved.tolist(), strict=True):
            if not pending.targets:
                continue
            good = bool(has_moved) and math.isfinite(total)
            loss = total / pending.targets
            found.append(StepResult(pending.step, loss, pending.first_sample, good))
            if good:
                self.interval.nats += total
                self.interval.targets += pending.targets
                self.interval.tokens += pending.targets
                self.interval.samples += self.batch_rows
        self.interval.cpu_seconds += cpu
        self.drop()
        return found


class Stopwatch:
    """Wall seconds by what they went to, since the last `read`.

    On a CUDA device what a step does is counted until its kernels were launched; `device` is how long they
    were waited for.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, what: str, began: float) -> float:
        """Count the time from `began` (time.monotonic) until now; returns now."""
        now = time.monotonic()
        self._seconds[what] = self._seconds.get(what, 0.0) + now - began
        return now

    def read(self) -> dict[str, float]:
        """Return the seconds by name; then begin again at 0."""
        found, self._seconds = self._seconds, {}
        return found
