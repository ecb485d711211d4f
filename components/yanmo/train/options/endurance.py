"""Options of a training that runs for nights: when, checkpoints, what to do when something goes wrong.

A part of `TrainConfig`, in a file of its own because it is about the run and not about the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.common.options import StageOptions, opt
from yanmo.train.supervision.shifts import Hours


@dataclass(frozen=True, kw_only=True)
class EnduranceOptions(StageOptions):
    """What `TrainConfig` inherits."""

    nonfinite_steps: int = opt(
        3,
        "steps in a row with a loss or gradient that is not finite, all of them skipped, after which the "
        "training rewinds to a checkpoint and goes on after their data; 0 only skips",
        form=False,
    )
    spike_nats: float = opt(
        2.0,
        "rise of the loss above its mean of the last 50 steps, nats per token, that makes the training "
        "rewind when 5 steps in a row show it; 0 never",
        form=False,
    )
    rewinds: int = opt(5, "most rewinds of a training; one more ends it as diverged", form=False)

    keep_every: int = opt(
        0,
        "every how many checkpoints one is kept to the end; besides it the last two and the best are; 0 "
        "keeps no others",
        kind="execution",
        form=False,
    )

    monitor: str = opt(
        "fast",
        "collapse monitor: fast watches gradients and updates by layer; full also units, ranks and entropies",
        kind="execution",
        form=False,
        choices=("full", "fast", "off"),
    )
    monitor_every: int = opt(100, "steps between looks of --monitor", kind="execution", form=False)

    benchmark: bool = opt(
        False,
        "train no model: try ranks, micro batches and backends for a few steps each and print the fastest",
        kind="environment",
        form=False,
    )
    profile: int = opt(
        0,
        "steps of which a torch profiler trace is written beside the model; 0 none",
        kind="environment",
        form=False,
    )
    hang_seconds: float = opt(
        600.0,
        "seconds without progress after which a rank dumps its stacks and exits 75; 0 waits for ever",
        kind="environment",
        form=False,
    )
    max_seconds: float = opt(
        0.0, "seconds after which the run saves and pauses; 0 for no limit", kind="environment", form=False
    )
    stop_at: str = opt(
        "", "wall time, HH:MM, at which the run saves and pauses", kind="environment", form=False
    )
    night: str = opt(
        "",
        "hours of the night, HH:MM-HH:MM (21:00-08:00); outside of them --by-day holds",
        kind="environment",
        form=False,
    )
    by_day: str = opt(
        "pause",
        "outside of --night: pause until the command is run in it again, or train with the day's settings",
        kind="environment",
        form=False,
        choices=("pause", "train"),
    )
    timezone: str = opt(
        "UTC", "zone of --stop-at and --night, such as Asia/Shanghai", kind="environment", form=False
    )
    night_micro_batch: int = opt(
        0, "--micro-batch in the hours of --night; 0 for the same", kind="execution", form=False
    )
    memory_share: float = opt(
        1.0, "most of each GPU's memory that a rank may take (0 to 1)", kind="execution", form=False
    )
    night_memory_share: float = opt(
        0.0, "--memory-share in the hours of --night; 0 for the same", kind="execution", form=False
    )
    power_watts: int = opt(
        0,
        "power limit of each GPU while it trains, W, where nvidia-smi may set it; 0 leaves it",
        kind="execution",
        form=False,
    )
    night_power_watts: int = opt(
        0, "--power-watts in the hours of --night, W; 0 for the same", kind="execution", form=False
    )

    def hours(self) -> Hours:
        """When to train.

        Raises:
            ValueError: a time, window or zone is none; names the option.
        """
        return Hours(
            night=self.night,
            by_day="train" if self.by_day == "train" else "pause",
            stop_at=self.stop_at,
            max_seconds=self.max_seconds,
            timezone=self.timezone,
        )
