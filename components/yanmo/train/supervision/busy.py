"""Two nights of a channel never train at once: `--when-busy`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from yanmo.stage.channel_lease import alone_in
from yanmo.stage.stage_run import StageRun
from yanmo.train.config import TrainConfig


def alone(run: StageRun[TrainConfig, Any]) -> AbstractContextManager[None]:
    """The lease of the channel, where the options ask for it."""
    options = run.options
    if options.when_busy == "train":
        return nullcontext()
    waits = options.when_busy == "wait"
    return alone_in(run.store, run.stage.name, options.channel, options.run_id, waits=waits)
