"""The training loop of one rank."""

from __future__ import annotations

import json
import logging
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

import torch
import torch.distributed as dist

from yanmo.common.errors import UsageError
from yanmo.common.logs import human_seconds
from yanmo.common.options import by_kind
from yanmo.train import checkpoint, job
from yanmo.train.config import TrainConfig
from yanmo.train.data import Samples
from yanmo.train.engine import Engine
from yanmo.train.schedule import multiplier
from yanmo.train.validate import Validation

log = logging.getLogger(__name__)
_LOG_SECONDS = 10.0


@dataclass
class Interval:
    """Sums since the last line of metrics; part of a checkpoint, so that a resumed run's lines are equal."""

    nats: float = 0.0
    targets: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Of training since step 0, checkpoints and validations left out."""
    cpu_seconds: float = 0.0
    """Of all ranks in training steps since step 0: comparable on a busy machine."""
    tokens: int = 0
    """Predicted tokens since step 0."""
    line_seconds: float = 0.0
    """Value of `seconds` at the last line."""


@dataclass
class Loop:
    """Trains until the last step or until asked to stop."""

    options: TrainConfig
    engine: Engine
    samples: Samples
    validation: Validation
    folder: Path
    identity: dict[str, str]
    step: int = 0
    sums: Interval = field(default_factory=Interval)
    stop_asked: bool = False
    """Set by a signal handler."""
    _metrics: TextIO | None = None
    _said: float = field(default_factory=time.monotonic)
    _saved: float = field(default_factory=time.monotonic)

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        root = self.folder / job.CHECKPOINTS
        chosen: list[Any] = [checkpoint.newest(root) if self.engine.rank == 0 else None]
        dist.broadcast_object_list(chosen)
        if chosen[0] is not None:
            position = checkpoint.load(self.engine, chosen[0], self.identity)
            self.step, self.sums = position.step, Interval(**position.progress)
            log.info("resuming at step %d of %d from %s", self.step, self.options.steps, chosen[0])
        if self.engine.rank == 0:
            self._open_metrics()

    def _open_metrics(self) -> None:
        """Continue metrics.jsonl, without the lines of steps that will be made again."""
        path = self.folder / job.METRICS
        lines = [line for line in job.read_metrics(path) if line["step"] <= self.step]
        self._metrics = path.open("w", encoding="utf-8")
        for line in lines:
            self._write(line)

    def run(self) -> Literal["done", "paused"]:
        """Train; the model is whole in the engine when this returns `done`."""
        while self.step < self.options.steps:
            stop, save = self._one_step()
            if self.step == self.options.steps:
                break
            if save or stop:
                self._save()
            if stop:
                return "paused"
            if self.options.valid_every and self.step % self.options.valid_every == 0:
                self._validate()
        self._validate()
        return "done"

    def _one_step(self) -> tuple[bool, bool]:
        options, engine = self.options, self.engine
        began, cpu_began = time.monotonic(), time.process_time()
        share = self._learning_rate()
        engine.set_learning_rate(share)
        first = self.step * options.batch_rows
        batch = self.samples.batch(first, options.batch_rows)
        num_targets = batch.num_targets
        mine = engine.rank * options.rank_rows
        losses = []
        for begin in range(mine, mine + options.rank_rows, options.micro_rows):
            rows = batch.rows(begin, begin + options.micro_rows)
            losses.append(engine.accumulate(rows, num_targets))
        engine.step()
        nats = float(torch.stack(losses).sum())
        self.step += 1
        nats, cpu, stop, save = self._agree(nats, time.process_time() - cpu_began)
        if not math.isfinite(nats):
            raise UsageError(
                f"loss is {nats} at step {self.step}: training diverged; lower the learning rates"
            )
        sums = self.sums
        sums.nats, sums.targets, sums.steps = sums.nats + nats, sums.targets + num_targets, sums.steps + 1
        sums.tokens, sums.cpu_seconds = sums.tokens + num_targets, sums.cpu_seconds + cpu
        sums.seconds += time.monotonic() - began
        if self.step % options.log_every == 0 or self.step == options.steps:
            self._report(share)
        return stop, save

    def _learning_rate(self) -> float:
        o = self.options
        return multiplier(
            self.step, steps=o.steps, warmup_steps=o.warmup_steps, schedule=o.schedule, floor=o.floor
        )

    def _agree(self, nats: float, cpu: float) -> tuple[float, float, bool, bool]:
        """Sum loss and CPU seconds over ranks, and let all of them stop or save after the same step."""
        stop = self.stop_asked or (self.engine.rank == 0 and (self.folder / job.STOP).exists())
        votes = torch.tensor(
            [nats, cpu, float(stop), float(self._save_due())],
            dtype=torch.float64,
            device=self.engine.device,
        )
        dist.all_reduce(votes)
        total, cpu, stops, saves = votes.tolist()
        return total, cpu, stops > 0, saves > 0

    def _save_due(self) -> bool:
        o = self.options
        if self.engine.rank:
            return False
        if o.checkpoint_steps:
            return self.step % o.checkpoint_steps == 0
        return o.checkpoint_seconds > 0 and time.monotonic() - self._saved >= o.checkpoint_seconds

    def _save(self) -> None:
        position = checkpoint.Position(self.step, self.identity, vars(self.sums))
        began = time.monotonic()
        path = checkpoint.save(self.engine, self.folder / job.CHECKPOINTS, position)
        self._saved = time.monotonic()
        log.info("saved %s in %.1f s", path.name, self._saved - began)

    def _report(self, share: float) -> None:
        sums, options = self.sums, self.options
        loss = sums.nats / max(sums.targets, 1)
        seconds = max(sums.seconds - sums.line_seconds, 1e-9)
        line = {
            "step": self.step,
            "loss": loss,
            "bits_per_character": loss / math.log(2) * self.samples.tokens_per_character,
            "learning_rate": self.engine.learning_rate,
            "grad_norm": self.engine.gradient_norm(),
            "tokens": sums.tokens,
            "tokens_per_second": sums.targets / seconds,
            "seconds": sums.seconds,
            "cpu_seconds": sums.cpu_seconds,
        }
        sums.nats, sums.targets, sums.steps, sums.line_seconds = 0.0, 0, 0, sums.seconds
        self._write(line)
        if time.monotonic() - self._said >= _LOG_SECONDS or self.step == options.steps:
            self._said = time.monotonic()
            left = sums.seconds / self.step * (options.steps - self.step)
            log.info(
                "step %d of %d (%d %%): loss %.3f, %.3f bits per character, %.0f tokens/s, %s left",
                self.step,
                options.steps,
                100 * self.step // options.steps,
                loss,
                line["bits_per_character"],
                line["tokens_per_second"],
                human_seconds(left),
            )

    def _validate(self) -> None:
        if not self.validation.documents:
            return
        found = self.validation.bits_per_character(self.engine)
        self._write({"step": self.step, "valid_bits_per_character": found})
        text = ", ".join(f"{genre} {bits:.3f}" for genre, bits in found.items())
        log.info("validation at step %d, bits per character: %s", self.step, text)

    def _write(self, line: dict[str, Any]) -> None:
        if self._metrics:
            self._metrics.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._metrics.flush()


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
