"""The training loop of one rank."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from yanmo.common.errors import UsageError
from yanmo.common.options import by_kind
from yanmo.train import job
from yanmo.train.agreement import Agreement
from yanmo.train.backends.engine import WEIGHT, Engine
from yanmo.train.checkpoints import checkpoint
from yanmo.train.checkpoints.checkpoint import Position
from yanmo.train.checkpoints.writer import Writer
from yanmo.train.config import TrainConfig
from yanmo.train.data import Samples
from yanmo.train.health.monitor import Monitor
from yanmo.train.health.setbacks import Health, Skipped, Trouble
from yanmo.train.judge import Judge, mean_of
from yanmo.train.metrics.interval import Interval, Ledger, PendingStep, Stopwatch
from yanmo.train.metrics.record import Record
from yanmo.train.metrics.trace import Trace
from yanmo.train.schedule import Schedule
from yanmo.train.supervision.shifts import Clock
from yanmo.train.validate import Validation

log = logging.getLogger(__name__)
Ending = Literal["done", "paused", "changed"]


@dataclass
class Loop:
    """Trains until the last step, until asked to stop, or until its shift is over."""

    options: TrainConfig
    engine: Engine
    samples: Samples
    validation: Validation
    folder: Path
    identity: dict[str, str]
    agreement: Agreement
    ends_at: float | None = None
    """Unix seconds; see `Job`."""
    then: str = "paused"
    reason: str = ""
    note: str = ""
    clock: Clock = time.time
    beat: Callable[[str], None] = lambda doing: None
    """Told what is being done, each time that it changes: the watchdog."""

    step: int = 0
    stop_asked: bool = False
    """Set by a signal handler."""
    skipped: list[Skipped] = field(default_factory=list)
    """Samples that were stepped over."""
    rewinds: int = 0
    best: float = math.inf
    """Best validation so far, bits per character."""
    _best_checkpoint: str = ""
    """The checkpoint of it: in the state, as a kill may come between its commit and the pointer."""
    saves: int = 0
    _offset: int = 0
    """Samples stepped over by rewinds: how far the data is ahead of the steps."""
    _saved_step: int = -1
    _lines: int | None = None
    """Of metrics.jsonl when the checkpoint was made that the training stands on."""
    _validated_step: int = -1
    """Of the last validation: one that a checkpoint holds is not made, and not heard by the judge, again."""
    _saved_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        options, engine = self.options, self.engine
        self.health = Health(options.nonfinite_steps, options.spike_nats)
        self.ledger = Ledger(self.agreement, options.batch_rows)
        self.watch = Stopwatch()
        self._at = 0.0
        engine.forwarded = self._forwarded
        self.writer = Writer(engine, self.folder / job.CHECKPOINTS, self.agreement)
        self.schedule, self.judge = Schedule.of(options), Judge.of(options)
        self.record = Record(options, engine, self.samples, self.folder)
        self.trace = Trace(self.folder, 0 if engine.rank else options.profile, engine.device)
        self.monitor = Monitor(
            engine, self.agreement, options.monitor, options.monitor_every, options.warmup_steps
        )

    @property
    def interval(self) -> Interval:
        """Sums since the last line."""
        return self.ledger.interval

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        self.writer.clear()
        root = self.folder / job.CHECKPOINTS
        found = self.agreement.from_first(checkpoint.newest(root) if self.engine.rank == 0 else None)
        if found is not None:
            self._load(found)
            log.info("resuming at step %d of %d from %s", self.step, self.options.steps, found)
        self.record.open(self.step, self._lines)
        if self.note:
            rows = self.options.micro_rows
            self.record.event(self.step, "settings", reason=self.note, micro_batch=rows)

    def run(self) -> Ending:
        """Train; the model is whole in the engine when this returns `done`."""
        while self.step < self.options.steps and not self.judge.is_over:
            ending = self._stretch()
            if ending:
                return ending
        self._check_weights()
        if not self.judge.is_over and self._validated_step != self.step:
            self._validate()
        self.writer.finish()
        self.trace.finish()
        self._go_back_to_the_best()
        return "done"

    def _stretch(self) -> Ending | None:
        """Train one step and do what is due after it."""
        self._one_step()
        if self._line_due():
            if self._read():
                return None
            self.record.line(self.step, self.interval, self.watch)
        stop, over, due = self._agree()
        if self.step == self.options.steps:
            return None
        validate = self.options.valid_every and self.step % self.options.valid_every == 0
        if (stop or over or due or validate) and self._read():
            return None
        if validate:  # before a checkpoint, whose state then says what was found
            self._validate()
            if self.judge.is_over:
                return None
        if stop or over or due:
            self._save()
        if stop or over:
            self.beat("waiting for the checkpoint")
            self.writer.finish()
            if over and not stop:
                log.info("%s: saved at step %d", self.reason, self.step)
            return "changed" if over and not stop and self.then == "changed" else "paused"
        return None

    def _one_step(self) -> None:
        options, engine = self.options, self.engine
        began, cpu_began = time.monotonic(), time.process_time()
        self.beat(f"training step {self.step + 1}")
        self.trace.begin_step()
        engine.set_learning_rate(self._learning_rate())
        first = self._first_sample()
        batch = self.samples.batch(first, options.batch_rows)
        num_targets = batch.num_targets
        self._at = self.watch.add("data", began)
        mine = engine.rank * options.rank_rows
        losses = []
        for begin in range(mine, mine + options.rank_rows, options.micro_rows):
            rows = batch.rows(begin, begin + options.micro_rows)
            losses.append(engine.accumulate(rows, num_targets))
            self._at = self.watch.add("backward", self._at)
        watched = self.monitor.begin(self.step + 1)
        moved = engine.step()
        end = self.watch.add("optimizer", self._at)
        self.step += 1
        pending = PendingStep(self.step, torch.stack(losses).sum(), num_targets, first, moved)
        self.ledger.add(pending, time.process_time() - cpu_began)
        self.interval.seconds += end - began
        self.trace.end_step()
        if watched:
            self.record.monitor(self.step, self.monitor.end(self.step, batch))
            self.watch.add("monitor", end)

    def _forwarded(self) -> None:
        self._at = self.watch.add("forward", self._at)

    def _first_sample(self) -> int:
        """The first sample of the next step."""
        return self.step * self.options.batch_rows + self._offset

    def _learning_rate(self) -> float:
        return self.schedule.at(self.step) * self.judge.multiplier

    def _agree(self) -> tuple[bool, bool, bool]:
        """Whether all ranks stop, are at the end of their shift, or save, after this same step."""
        first, writer = self.engine.rank == 0, self.writer
        stop = self.stop_asked or (first and (self.folder / job.STOP).exists())
        over = first and self.ends_at is not None and self.clock() >= self.ends_at
        due = first and self._save_due()
        flags = self.agreement.any(stop, over, due, writer.is_writing, writer.has_failed)
        writer.settle(writing=flags[3], failed=flags[4])
        return flags[0], flags[1], flags[2]

    def _save_due(self) -> bool:
        o = self.options
        by_steps = o.checkpoint_steps and self.step % o.checkpoint_steps == 0
        by_time = o.checkpoint_seconds and time.monotonic() - self._saved_at >= o.checkpoint_seconds
        return bool(by_steps or (by_time and self.writer.is_idle))

    def _save(self) -> None:
        """Begin a checkpoint of this step, if there is none; one that is being written comes first."""
        if self._saved_step == self.step:  # as the best of a validation
            return
        self._saved_step = self.step
        self.beat("saving a checkpoint")
        began = time.monotonic()
        self.writer.finish()
        self.saves += 1
        keep = bool(self.options.keep_every) and self.saves % self.options.keep_every == 0
        self.writer.begin(Position(self.step, self.identity, self._progress()), keep=keep)
        self._saved_at = self.watch.add("checkpoint", began)
        log.info("saving step %d; training waited %.2f s", self.step, self._saved_at - began)

    def _progress(self) -> dict[str, Any]:
        return {
            "interval": asdict(self.interval),
            "health": self.health.state(),
            "skipped": [asdict(one) for one in self.skipped],
            "offset": self._offset,
            "rewinds": self.rewinds,
            "best": None if math.isinf(self.best) else self.best,
            "best_checkpoint": self._best_checkpoint,
            "saves": self.saves,
            "judge": self.judge.state(),
            "validated_step": self._validated_step,
            "lines": self.record.count,
        }

    def _load(self, folder: Path) -> None:
        self.beat("loading a checkpoint")
        position = checkpoint.load(self.engine, folder, self.identity)
        progress = position.progress
        self.step = self._saved_step = position.step
        self.ledger.drop()
        self.ledger.interval = Interval(**progress["interval"])
        self.health.restore(progress["health"])
        self.skipped = [Skipped(**one) for one in progress["skipped"]]
        self._offset, self.rewinds, self.saves = (progress[n] for n in ("offset", "rewinds", "saves"))
        self.best = math.inf if progress["best"] is None else progress["best"]
        self.judge.restore(progress["judge"])
        self._validated_step = progress["validated_step"]
        self._lines = progress.get("lines")
        self._find_the_best(progress.get("best_checkpoint", ""))

    def _find_the_best(self, name: str) -> None:
        """Point at the best checkpoint that a state names; where it is gone, begin anew."""
        root = self.folder / job.CHECKPOINTS
        there = self.agreement.from_first((root / name / "manifest.json").is_file()) if name else True
        self._best_checkpoint = name if there else ""
        if not there:
            self.best = math.inf
            self._warn("the best model so far, %s, is gone; the next validation begins anew", name)
        elif name and self.engine.rank == 0:
            checkpoint.point(root, checkpoint.BEST, name)

    def _line_due(self) -> bool:
        return self.step % self.options.log_every == 0 or self.step == self.options.steps

    def _read(self) -> bool:
        """Read the losses since the last time; whether the training had to go back."""
        trouble, before = None, len(self.skipped)
        for result in self.ledger.read():
            if not result.good:
                rows = self.options.batch_rows
                self.skipped.append(Skipped(result.first_sample, rows, result.step, "not finite"))
                self.record.event(result.step, "skipped", first_sample=result.first_sample, samples=rows)
            trouble = self.health.note(result.step, result.loss, result.good) or trouble
        if len(self.skipped) > before:
            count, last = len(self.skipped) - before, self.skipped[-1].step
            self._warn("skipped %d of the steps up to %d: loss or gradient not finite", count, last)
        if trouble:
            self._rewind(trouble)
        return trouble is not None

    def _warn(self, message: str, *values: Any) -> None:
        """What all ranks find is said once."""
        if self.engine.rank == 0:
            log.warning(message, *values)

    def _rewind(self, trouble: Trouble) -> None:
        """Go back to before the trouble, and on with the data after it.

        Raises:
            UsageError: there is nothing to go back to, or it happened too often.
        """
        self.beat("rewinding")
        self.writer.finish()
        root, came_from, next_sample = self.folder / job.CHECKPOINTS, self.step, self._first_sample()
        rewinds = self.rewinds + 1
        found = None
        if self.engine.rank == 0 and rewinds <= self.options.rewinds:
            found = checkpoint.newest(root, before_step=trouble.first_step)
        found = self.agreement.from_first(found)
        if found is None:
            why = "no checkpoint from before it" if rewinds == 1 else f"after {rewinds - 1} rewinds"
            raise UsageError(
                f"{trouble.reason}, from step {trouble.first_step} on; {why}: training diverged; lower the "
                "learning rates"
            )
        if self.engine.rank == 0:
            checkpoint.drop_after(root, checkpoint.step_of(found))
        self._load(found)
        self.rewinds = rewinds
        first = self._first_sample()
        self._offset += next_sample - first
        self.skipped.append(Skipped(first, next_sample - first, came_from, trouble.reason))
        self.record.open(self.step, self._lines)
        self.record.event(
            self.step,
            "rewind",
            from_step=came_from,
            reason=trouble.reason,
            first_sample=first,
            samples=next_sample - first,
        )
        self._warn(
            "step %d: %s; back to step %d, and on after the %d samples in between",
            came_from,
            trouble.reason,
            self.step,
            next_sample - first,
        )

    def _validate(self) -> None:
        if not self.validation.documents:
            return
        began = time.monotonic()
        self.beat("validation")
        found = self.validation.bits_per_character(self.engine, lambda: self.beat("validation"))
        self.watch.add("validation", began)
        self.record.validation(self.step, found)
        self._validated_step = self.step
        for what in self.judge.hear(mean_of(found)):
            log.info("step %d: %s", self.step, what)
            self.record.event(self.step, "validation", decision=what)
        if self.options.valid_every and found.get("mean", math.inf) < self.best:
            self.best, self._best_checkpoint = found["mean"], checkpoint.name_of(self.step)
            self._keep_best()

    def _go_back_to_the_best(self) -> None:
        """With early stopping, hand over the best model instead of the last one."""
        root = self.folder / job.CHECKPOINTS
        if not self.options.early_stopping:
            return
        best = checkpoint.pointed(root, checkpoint.BEST) if self.engine.rank == 0 else None
        problem = checkpoint.fault(best) if best else None
        if problem:
            self._warn("the best model, %s, is damaged (%s); the last one is handed over", best, problem)
            self.record.event(self.step, "best", damaged=problem)
        best = self.agreement.from_first(None if problem else best)
        if best is not None and checkpoint.step_of(best) != self.step:
            came_from = self.step
            self._load(best)
            log.info("step %d was the best: its model is handed over", self.step)
            self.record.event(came_from, "best", best_step=self.step)

    def _keep_best(self) -> None:
        """Save this step, if it is not yet, as the best so far."""
        self._save()
        self.writer.finish()
        if self.engine.rank == 0:
            checkpoint.point(self.folder / job.CHECKPOINTS, checkpoint.BEST, checkpoint.name_of(self.step))

    def _check_weights(self) -> None:
        """Refuse to hand over a model that is no model.

        Raises:
            UsageError: weights are not finite, or no step ever moved them.
        """
        mine = [part.values for part in self.engine.parts() if part.kind == WEIGHT]
        broken = not all(bool(torch.isfinite(values).all()) for values in mine)
        (broken,) = self.agreement.any(broken)
        if broken or not self.engine.updates:
            what = "weights that are not finite" if broken else "no step whose gradient was finite"
            raise UsageError(f"{what} after {self.step} steps: training diverged; lower the learning rates")


def identity_of(
    options: TrainConfig, samples: Samples, cache_digest: str, shape: dict[str, Any]
) -> dict[str, str]:
    """What a checkpoint of this run must have been made with, by name."""
    return {
        "token cache": cache_digest[:16],
        "data plan": samples.plan(0).digest[:16],
        "model shape": checkpoint.digest(shape),
        "options": checkpoint.digest(by_kind(options, "semantic")),
    }
