"""The dashboard of a run: how far, how well, how fast, what it needs, what is wrong."""

from __future__ import annotations

from panels import CHANNEL, NAMESPACE, RANK, RUN, Dashboard
from rows_of_stages import COST, GPUS, STORE
from rows_of_training import CHECKPOINTS, HEALTH, LEARNING, MEMORY, PROGRESS, SPEED

TRAINING_RUN = Dashboard(
    name="run",
    title="Yanmo: a run",
    about="One run of the pipeline, live: progress and time left, loss and bits, speed, memory, GPU, store, "
    "alerts. Docs: docs/how-to/watch.md.",
    variables=(NAMESPACE, CHANNEL, RUN, RANK),
    rows=(PROGRESS, LEARNING, SPEED, MEMORY, CHECKPOINTS, HEALTH, GPUS, STORE, COST),
    since="now-3h",
    refresh="15s",
)
