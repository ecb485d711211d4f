"""Options of what a training measures meanwhile, of its checkpoints, and of when something goes wrong."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import Options, opt


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions(Options, group="measuring"):
    """Validations, lines of metrics, and how much of a gain is luck."""

    log_every: int = opt(10, "steps per line of metrics.jsonl", kind="execution", least=1, trial=1)
    valid_every: int = opt(
        0, "steps between validations; 0 validates at the end only", kind="execution", trial=0, often=True
    )
    valid_characters: int = opt(
        8000, "most characters of each genre in a validation; 0 skips it", kind="execution", trial=0
    )
    twins: int = opt(
        0,
        "short trainings with other seeds, made once for a recipe after its model: they measure how much "
        "of a gain is luck, for promote's margin; 0 measures nothing, then promote assumes",
        kind="execution",
        most=1000,
    )
    twin_share: float = opt(0.5, "share of the steps that a twin has", kind="execution", above=0, most=1)

    def contradictions(self) -> list[str]:
        """A number of twins that measures nothing."""
        if self.twins != 1:
            return []
        return ["--twins 1 measures nothing: expected 0, or 2 and more, which are compared"]


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(Options, group="checkpoints"):
    """When a training is saved, and which saves are kept (docs/resume.md)."""

    checkpoint_steps: int = opt(
        0, "steps between checkpoints; 0 for none by steps", kind="execution", trial=0
    )
    checkpoint_seconds: float = opt(
        120.0, "seconds between checkpoints; 0 for none by time", kind="execution", trial=0.0
    )
    keep_every: int = opt(
        0,
        "every how many checkpoints one is kept to the end; besides it the last two and the best are; 0 "
        "keeps no others",
        kind="execution",
    )


@dataclass(frozen=True, kw_only=True)
class HealthOptions(Options, group="health"):
    """What is watched, and what follows when something is wrong."""

    nonfinite_steps: int = opt(
        3,
        "steps in a row with a loss or gradient that is not finite, all of them skipped, after which the "
        "training rewinds to a checkpoint and goes on after their data; 0 only skips",
    )
    spike_nats: float = opt(
        2.0,
        "rise of the loss above its mean of the last 50 steps, nats per token, that makes the training "
        "rewind when 5 steps in a row show it; 0 never",
    )
    rewinds: int = opt(5, "most rewinds of a training; one more ends it as diverged")
    monitor: str = opt(
        "fast",
        "collapse monitor: fast watches gradients and updates by layer; full also units, ranks and entropies",
        kind="execution",
        choices=("full", "fast", "off"),
        trial="off",
    )
    monitor_every: int = opt(100, "steps between looks of --monitor", kind="execution", least=1)
    hang_seconds: float = opt(
        600.0,
        "seconds without progress after which a rank dumps its stacks and exits 75; 0 waits for ever",
        kind="environment",
    )
