"""The state of a training between two steps: what a checkpoint holds, and how it is saved and restored.

Checkpoints are written in the background. A training resumes from the newest one, rewinds to one from before
trouble, and returns to the best one at the end. The steps themselves are in loop.py.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.options.fields import by_kind
from yanmo.train import job
from yanmo.train.backends.engine import Engine
from yanmo.train.backends.loss_module import FIRST_POWER
from yanmo.train.backends.process_group import Collectives
from yanmo.train.checkpoints import checkpoint
from yanmo.train.checkpoints.checkpoint import Position
from yanmo.train.checkpoints.far_parts import FarParts
from yanmo.train.checkpoints.writer import Writer
from yanmo.train.config import TrainConfig
from yanmo.train.data import Samples
from yanmo.train.health.setbacks import Health, Trouble
from yanmo.train.health.watchdog import LOADING, RankFigures
from yanmo.train.metrics.interval import Interval, Ledger, Stopwatch
from yanmo.train.metrics.metrics_log import MetricsLog
from yanmo.train.validate import ValidationPolicy

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Resumable:
    """A training that can be saved, resumed, rewound, and returned to its best step."""

    options: TrainConfig
    engine: Engine
    samples: Samples
    folder: Path
    identity: dict[str, str]
    collectives: Collectives
    note: str = ""
    """See `WorkerJob`."""
    beat: Callable[[str], None] = lambda doing: None
    """Called with what is being done, each time that changes: for the watchdog."""
    figures: RankFigures = field(default_factory=RankFigures)
    """What this rank counts for /metrics."""
    far_parts: FarParts | None = None
    """Of several nodes without a common folder."""

    step: int = 0
    rewinds: int = 0
    best: float = math.inf
    """Best validation so far, bits per character."""
    _best_checkpoint: str = ""
    """Name of its checkpoint; part of the state, as a kill may come between its commit and its pointer."""
    _offset: int = 0
    """Samples that rewinds skipped: how far the data is ahead of the steps."""
    _saved_step: int = -1
    _lines: int | None = None
    """Lines that metrics.jsonl had at the checkpoint from which the training continues."""
    _validated_step: int = -1
    """Step of the last validation, so that a validation whose result a checkpoint holds is not repeated."""
    _saved_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        options, engine = self.options, self.engine
        halvings = FIRST_POWER if options.precision == "fp16" else 0
        self.health = Health(options.nonfinite_steps, options.spike_nats, halvings)
        self.ledger = Ledger(self.collectives, options.batch_rows)
        self.watch = Stopwatch()
        root = self.folder / job.CHECKPOINTS
        self.writer = Writer(engine, root, self.collectives, self.figures, self.far_parts)
        self.validation_policy = ValidationPolicy.of(options)
        self.metrics_log = MetricsLog(options, engine, self.samples, self.folder)

    @property
    def interval(self) -> Interval:
        """Sums since the last line of metrics.jsonl."""
        return self.ledger.interval

    def resume(self) -> None:
        """Resume from the newest whole checkpoint, if there is one."""
        self.writer.clear()
        root = self.folder / job.CHECKPOINTS
        found = self._from_first(checkpoint.newest(root) if self.engine.rank == 0 else None)
        if found is not None:
            self._load(found)
            log.info("resuming at step %d of %d from %s", self.step, self.options.steps, found)
        self.metrics_log.open(self.step, self._lines)
        if self.note:
            rows = self.options.micro_rows
            self.metrics_log.event(self.step, "settings", reason=self.note, micro_batch=rows)

    def _from_first(self, found: Path | None) -> Path | None:
        """Rank 0's checkpoint, as this rank's machine calls it: nodes may have mounted the store anywhere."""
        name = self.collectives.from_first(found.name if found else None)
        return self.folder / job.CHECKPOINTS / name if name else None

    def _first_sample(self) -> int:
        """Return the first sample of the next step."""
        return self.step * self.options.batch_rows + self._offset

    def _save_due(self) -> bool:
        o = self.options
        by_steps = o.checkpoint_steps and self.step % o.checkpoint_steps == 0
        by_time = o.checkpoint_seconds and time.monotonic() - self._saved_at >= o.checkpoint_seconds
        return bool(by_steps or (by_time and self.writer.is_idle))

    def _save(self) -> None:
        """Begin a checkpoint of this step, unless there is one; waits for one that is being written."""
        if self._saved_step == self.step:  # saved as the best after a validation
            return
        self._saved_step = self.step
        self.beat("saving a checkpoint")
        began = time.monotonic()
        self.writer.finish()
        self.writer.begin(Position(self.step, self.identity, self._progress()))
        self._saved_at = self.watch.add("checkpoint", began)
        log.info("saving step %d; training waited %.2f s", self.step, self._saved_at - began)

    def _progress(self) -> dict[str, Any]:
        return {
            "interval": asdict(self.interval),
            "health": self.health.state(),
            "offset": self._offset,
            "rewinds": self.rewinds,
            "best": None if math.isinf(self.best) else self.best,
            "best_checkpoint": self._best_checkpoint,
            "judge": self.validation_policy.state(),
            "validated_step": self._validated_step,
            "lines": self.metrics_log.count,
        }

    def _load(self, folder: Path) -> None:
        self.beat(LOADING)
        if self.far_parts:
            self.far_parts.share(folder, self.collectives, is_first=self.engine.rank == 0)
        position = checkpoint.load(self.engine, folder, self.identity)
        progress = position.progress
        self.step = self._saved_step = position.step
        self.ledger.drop()
        self.ledger.interval = Interval(**progress["interval"])
        self.health.restore(progress["health"])
        self._offset, self.rewinds = progress["offset"], progress["rewinds"]
        self.best = math.inf if progress["best"] is None else progress["best"]
        self.validation_policy.restore(progress["judge"])
        self._validated_step = progress["validated_step"]
        self._lines = progress.get("lines")
        self._find_the_best(progress.get("best_checkpoint", ""))

    def _rewind(self, trouble: Trouble) -> None:
        """Load the newest checkpoint from before the trouble, and continue with the data after it.

        Raises:
            UsageError: there is no checkpoint from before it, or there were too many rewinds.
        """
        self.beat("rewinding")
        self.writer.finish()
        root, came_from, next_sample = self.folder / job.CHECKPOINTS, self.step, self._first_sample()
        rewinds = self.rewinds + 1
        found = None
        if self.engine.rank == 0 and rewinds <= self.options.rewinds:
            found = checkpoint.newest(root, before_step=trouble.first_step)
        found = self._from_first(found)
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
        self.metrics_log.open(self.step, self._lines)
        self.metrics_log.event(
            self.step,
            "rewind",
            from_step=came_from,
            reason=trouble.reason,
            first_sample=first,
            samples=next_sample - first,
        )
        self._warn(
            "step %d: %s; rewinding to step %d and skipping the %d samples in between",
            came_from,
            trouble.reason,
            self.step,
            next_sample - first,
        )

    def _keep_best(self) -> None:
        """Save this step, unless it is saved already, and set the pointer `best` to it."""
        self._save()
        self.writer.finish()
        if self.engine.rank == 0:
            checkpoint.set_pointer(
                self.folder / job.CHECKPOINTS, checkpoint.BEST, checkpoint.name_of(self.step)
            )

    def _find_the_best(self, name: str) -> None:
        """Set the pointer `best` to the checkpoint that a state names; if that is gone, forget the best."""
        root = self.folder / job.CHECKPOINTS
        there = self.collectives.from_first((root / name / "manifest.json").is_file()) if name else True
        self._best_checkpoint = name if there else ""
        if not there:
            self.best = math.inf
            self._warn("the best checkpoint so far, %s, is gone; the next validation sets a new best", name)
        elif name and self.engine.rank == 0:
            checkpoint.set_pointer(root, checkpoint.BEST, name)

    def _go_back_to_the_best(self) -> None:
        """With early stopping, load the best checkpoint: its model is the result, and not the last one."""
        root = self.folder / job.CHECKPOINTS
        if not self.options.early_stopping:
            return
        best = checkpoint.read_pointer(root, checkpoint.BEST) if self.engine.rank == 0 else None
        problem = checkpoint.damage(best) if best else None
        if problem:
            self._warn("the best model, %s, is damaged (%s); the last one is taken instead", best, problem)
            self.metrics_log.event(self.step, "best", damaged=problem)
        best = self._from_first(None if problem else best)
        if best is not None and checkpoint.step_of(best) != self.step:
            came_from = self.step
            self._load(best)
            log.info("step %d was the best: its model is the result", self.step)
            self.metrics_log.event(came_from, "best", best_step=self.step)

    def _warn(self, message: str, *values: Any) -> None:
        """Log, on rank 0 only, a warning that all ranks would give."""
        if self.engine.rank == 0:
            log.warning(message, *values)


def identity_of(
    options: TrainConfig, samples: Samples, cache_digest: str, shape: dict[str, Any], base_digest: str = ""
) -> dict[str, str]:
    """`Position.identity` of a training: digests of what its checkpoints must have been made with.

    Args:
        cache_digest: content digest of the token cache.
        shape: fields of the decoder's config.
        base_digest: content digest of the frozen model, which the checkpoints do not hold; "" for none.
    """
    base = {"frozen model": base_digest[:16]} if base_digest else {}
    return base | {
        "token cache": cache_digest[:16],
        "data plan": samples.plan(0).digest[:16],
        "model shape": checkpoint.digest(shape),
        "options": checkpoint.digest(by_kind(options, "semantic")),
    }
