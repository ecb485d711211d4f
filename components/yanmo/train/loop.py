"""The training loop of one rank: its steps, and what is due after each."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from yanmo.common.errors import UsageError
from yanmo.common.words import plural
from yanmo.train.backends.engine import WEIGHT
from yanmo.train.checkpoints import checkpoint
from yanmo.train.checkpoints.resumable import Resumable
from yanmo.train.health.monitor import Monitor
from yanmo.train.health.watchdog import TRAINING
from yanmo.train.metrics.interval import PendingStep
from yanmo.train.metrics.utilization import profiler
from yanmo.train.schedule import Schedule
from yanmo.train.time_window import Clock
from yanmo.train.validate import Curve, Validation, mean_of

log = logging.getLogger(__name__)
Ending = Literal["done", "paused"]
"""How a loop ends: after the last step; saved."""


@dataclass(kw_only=True)
class Loop(Resumable):
    """Trains until the last step, until asked to stop, or until its time window is over."""

    validation: Validation
    curve: Curve
    ends_at: float | None = None
    """Unix seconds after which to save and end; `reason` says why: see `WorkerJob`."""
    reason: str = ""
    clock: Clock = time.time
    stop_file: Path | None = None
    """Of this node, on its first rank; there once the node is asked to stop."""
    stop_asked: bool = False
    """Set by the handler of SIGTERM: save and end after this step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        options, engine = self.options, self.engine
        self._at = 0.0
        engine.forwarded = self._forwarded
        self.schedule = Schedule(options)
        self.profiler = profiler(self.folder, 0 if engine.rank else options.profile, engine.device)
        self.monitor = Monitor(
            engine, self.collectives, options.monitor, options.monitor_every, options.warmup_steps
        )

    def run(self) -> Ending:
        """Train to an ending; after `done` the engine holds the finished model."""
        options, policy = self.options, self.validation_policy
        while self.step < options.steps and not policy.is_over:
            self._train_step()
            if self.step % options.log_every == 0 or self.step == options.steps:
                if self._read():
                    continue  # rewound
                self.metrics_log.line(self.step, self.interval, self.watch, self.figures)
            stop, over, due = self._agree()
            if self.step == options.steps:
                break
            validate = options.valid_every and self.step % options.valid_every == 0
            if (stop or over or due or validate) and self._read():
                continue
            if validate:  # before a checkpoint, so that its state includes the result
                self._validate()
                if policy.is_over:
                    break
            self._draw()
            if stop or over or due:
                self._save()
            if stop or over:
                self.beat("waiting for the checkpoint")
                self.writer.finish()
                if over and not stop:
                    log.info("%s: saved at step %d", self.reason, self.step)
                return "paused"
        self._check_weights()
        if not policy.is_over and self._validated_step != self.step:
            self._validate()
        self._draw()
        self.writer.finish()
        if self.profiler:
            self.profiler.stop()
        self._go_back_to_the_best()
        return "done"

    def _train_step(self) -> None:
        """Forward and backward passes over this rank's rows, one update; reads nothing from the device."""
        options, engine = self.options, self.engine
        began, cpu_began = time.monotonic(), time.process_time()
        self.beat(f"{TRAINING} {self.step + 1}")
        engine.set_learning_rate(self.schedule.at(self.step) * self.validation_policy.multiplier)
        first = self._first_sample()
        batch = self.samples.batch(first, options.batch_rows)
        num_targets = batch.num_targets
        fed = self._at = self.watch.add("data", began)
        mine = engine.rank * options.rank_rows
        losses = []
        for begin in range(mine, mine + options.rank_rows, options.micro_rows):
            rows = batch.rows(begin, begin + options.micro_rows)
            losses.append(engine.accumulate(rows, num_targets))
            self._at = self.watch.add("backward", self._at)
        watched = bool(num_targets) and self.monitor.begin(self.step + 1)
        moved = engine.step() if num_targets else self._without_update(losses[0])
        end = self.watch.add("optimizer", self._at)
        self.step += 1
        pending = PendingStep(self.step, torch.stack(losses).sum(), num_targets, first, moved)
        self.ledger.add(pending, time.process_time() - cpu_began)
        self.interval.seconds += end - began
        self.figures.ended(self.step, end - began, fed - began)
        if self.profiler:
            self.profiler.step()
        if watched:
            self._wait()
            began = time.monotonic()
            self.metrics_log.monitor(self.step, self.monitor.end(self.step, batch))
            self.watch.add("monitor", began)

    def _wait(self) -> None:
        """Wait for the device's part of the steps so far."""
        began = time.monotonic()
        seconds = self.ledger.wait()
        if seconds:
            self.watch.add("device", began)
            self.figures.waited(seconds)

    def _without_update(self, loss: torch.Tensor) -> torch.Tensor:
        """Drop the gradient: a batch of nothing but questions teaches nothing: no momentum moves weights."""
        self.engine.skip()
        return torch.zeros_like(loss, dtype=torch.bool)

    def _forwarded(self) -> None:
        self._at = self.watch.add("forward", self._at)

    def _agree(self) -> tuple[bool, bool, bool]:
        """Return whether a stop was asked for, the time is over, a checkpoint is due; equal on all ranks."""
        first, writer = self.engine.rank == 0, self.writer
        stop = self.stop_asked or (self.stop_file is not None and self.stop_file.exists())
        over = first and self.ends_at is not None and self.clock() >= self.ends_at
        due = first and self._save_due()
        flags = self.collectives.any(stop, over, due, writer.is_writing, writer.has_failed)
        writer.settle(writing=flags[3], failed=flags[4])
        return flags[0], flags[1], flags[2]

    def _read(self) -> bool:
        """Read the losses since the last call; return whether the training was rewound."""
        self._wait()
        trouble, skipped = None, list[int]()
        for result in self.ledger.read():
            if not result.good:
                rows = self.options.batch_rows
                skipped.append(result.step)
                what = "gradient" if math.isfinite(result.loss) else "loss"
                self.metrics_log.event(
                    result.step, "skipped", first_sample=result.first_sample, samples=rows, what=what
                )
            trouble = self.health.note(result.step, result.loss, result.good) or trouble
        if skipped:
            count, last = len(skipped), skipped[-1]
            scale = self.engine.loss_scale().get("scale")
            so = f"; fp16's loss scale is {scale:g} now" if scale else ""
            self._warn("skipped %d of the steps up to %d: loss or gradient not finite%s", count, last, so)
        if trouble:
            self._rewind(trouble)
        return trouble is not None

    def _validate(self) -> None:
        if not self.validation.documents:
            return
        began = time.monotonic()
        self.beat("validation")
        found = self.validation.bits_per_character(self.engine, lambda: self.beat("validation"))
        self.watch.add("validation", began)
        self.metrics_log.validation(self.step, found)
        self._validated_step = self.step
        for what in self.validation_policy.update(mean_of(found)):
            log.info("step %d: %s", self.step, what)
            self.metrics_log.event(self.step, "validation", decision=what)
        if self.options.valid_every and found.get("mean", math.inf) < self.best:
            self.best, self._best_checkpoint = found["mean"], checkpoint.name_of(self.step)
            self._keep_best()
        if self.validation_policy.is_over and self._best_checkpoint:
            best, steps = checkpoint.step_of(Path(self._best_checkpoint)), self.options.steps
            log.info(
                "early stopping: the best was step %d, with %.4f bits per character; %d of %s saved",
                best,
                self.best,
                steps - self.step,
                plural(steps, "step"),
            )

    def _draw(self) -> None:
        """Measure a point of the curve, where one is due; nothing else of the training may depend on it."""
        if self.step not in self.curve.steps:
            return
        began = time.monotonic()
        self.beat("validation")
        found = self.curve.validation.bits_per_character(self.engine, lambda: self.beat("validation"))
        self.watch.add("validation", began)
        self.metrics_log.curve(self.step, found)

    def _check_weights(self) -> None:
        """Refuse to end with a broken model.

        Raises:
            UsageError: weights are not finite, or no step has moved them.
        """
        mine = [part.values for part in self.engine.parts() if part.kind == WEIGHT]
        broken = not all(bool(torch.isfinite(values).all()) for values in mine)
        (broken,) = self.collectives.any(broken)
        if broken or not self.engine.updates:
            what = "weights that are not finite" if broken else "no step whose gradient was finite"
            raise UsageError(f"{what} after {self.step} steps: training diverged; lower the learning rates")
