"""Weights & Biases: a run of a project; with WANDB_MODE=offline in files below ./wandb or WANDB_DIR."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import wandb

from yanmo.train.sinks.sink import TrainingRun


class WeightsAndBiases:
    """One run of the project `target` (`PROJECT` or `ENTITY/PROJECT`)."""

    def __init__(self, target: str) -> None:
        self._entity, _, self._project = target.rpartition("/")

    def begin(self, run: TrainingRun) -> defaultdict[str, int]:
        self._run = wandb.init(
            project=self._project,
            entity=self._entity or None,
            id=f"yanmo-{run.key[:32]}",
            name=run.name,
            config={**run.options, "key": run.key, "run_id": run.run_id, "channel": run.channel},
            resume="allow",
            settings=wandb.Settings(console="off", silent=True, init_timeout=60),
        )
        last = self._run.step - 1  # of any figure: it takes none of a step before
        return defaultdict(lambda: last)

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=step)

    def flush(self) -> None:
        """Its own process sends what it was given."""

    def end(self, done: bool) -> None:
        self._run.finish(exit_code=0 if done else 1)
