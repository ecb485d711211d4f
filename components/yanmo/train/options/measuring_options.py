"""Options of what a training measures meanwhile, of its checkpoints, and of when something goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from yanmo.common.words import did_you_mean
from yanmo.options.fields import Options, opt
from yanmo.options.values import brief

_LEAST_HANG = 10
"""Seconds; torch is imported in half as many."""
SINKS = {"tensorboard": "DIR", "mlflow": "URI", "wandb": "PROJECT"}
"""Name -> what its target is."""


def sinks_in(given: str) -> list[tuple[str, str]]:
    """Return name and target of each of `NAME=TARGET,...`."""
    parts = (part.strip().partition("=") for part in given.split(",") if part.strip())
    return [(name, target) for name, _, target in parts]


def wrong_sinks(given: str) -> Iterator[str]:
    """Return what cannot be, of the value of --sinks."""
    names = [name for name, _ in sinks_in(given)]
    known = ", ".join(f"{name}={target}" for name, target in SINKS.items())
    for name, target in sinks_in(given):
        if name not in SINKS or not target:
            yield f"--sinks {brief(f'{name}={target}')}: expected some of {known}{did_you_mean(name, SINKS)}"
        elif names.count(name) > 1:
            yield f"--sinks names {name} {names.count(name)} times: expected each at most once"


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions(Options, group="measuring"):
    """Validations, metrics, and how much of a gain the seed alone makes."""

    log_every: int = opt(10, "steps per line of metrics.jsonl", kind="execution", least=1, trial=1)
    valid_every: int = opt(
        0, "steps between validations, 0 for one at the end alone", kind="execution", trial=0, often=True
    )
    valid_points: int = opt(
        8,
        "points of the curve of validations that a page shows, at most, on as much text as takes 1 % of the "
        "training; nothing is decided by them; 0 draws none, nor does --valid-every, whose validations are "
        "the curve",
        kind="execution",
        most=1000,
        trial=0,
    )
    valid_characters: int = opt(
        8000,
        "characters of each genre in a validation, at most; 0 skips validations",
        kind="execution",
        trial=0,
    )
    valid_on: str = opt(
        "all",
        "what a validation measures, and so what early stopping and plateau decide by: all documents, or the "
        "answers of chats alone, whatever text is mixed in",
        kind="execution",
        choices=("all", "answers"),
    )
    twins: int = opt(
        0,
        "short trainings with other seeds, made once per recipe after its model, to measure how much "
        "of a gain the seed alone makes; promote's margin rests on it; with 0 promote assumes a value",
        kind="execution",
        most=1000,
    )
    twin_share: float = opt(
        0.5, "steps of such a training, as a share of --steps", kind="execution", above=0, most=1
    )

    sinks: str = opt(
        "",
        "where the figures go besides: tensorboard=DIR, mlflow=URI, wandb=PROJECT (docs/how-to/watch.md); "
        "a place that is away costs the training nothing",
        kind="environment",
        variable="YANMO_SINKS",
        metavar="NAME=TARGET,...",
    )

    def contradictions(self) -> list[str]:
        """Return what cannot be: a number of twins that measures nothing, an unknown sink."""
        problems = list(wrong_sinks(self.sinks))
        if self.twins == 1:
            problems.append("--twins 1 measures nothing: expected 0, or 2 and more to compare")
        return problems


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(Options, group="checkpoints"):
    """When a checkpoint is saved (docs/explanation/store.md)."""

    checkpoint_steps: int = opt(
        0, "steps between checkpoints; 0 makes none by steps", kind="execution", trial=0
    )
    checkpoint_seconds: float = opt(
        120.0, "seconds between checkpoints; 0 makes none by time", kind="execution", trial=0.0
    )


@dataclass(frozen=True, kw_only=True)
class HealthOptions(Options, group="health"):
    """What is watched, and what happens when something goes wrong."""

    nonfinite_steps: int = opt(
        3,
        "steps in a row whose loss or gradient is not finite, after which the training rewinds to a "
        "checkpoint and goes on after their data; each such step is skipped; 0 only skips",
    )
    spike_nats: float = opt(
        2.0,
        "rise of the loss above its mean over the last 50 steps, nats per token, that counts as a "
        "spike; 5 steps of it in a row rewind the training; 0 never",
    )
    rewinds: int = opt(5, "most rewinds of a training; one more ends it as diverged")
    monitor: str = opt(
        "fast",
        "collapse monitor; fast watches gradients and updates of each layer, full also dormant units, "
        "ranks and entropies",
        kind="execution",
        choices=("full", "fast", "off"),
        trial="off",
    )
    monitor_every: int = opt(100, "steps between two measurements of --monitor", kind="execution", least=1)
    hang_seconds: float = opt(
        600.0,
        "seconds without progress, 10 or more, after which a rank logs the stacks of its threads and exits "
        "with code 75; 0 waits forever",
        kind="environment",
    )
    peak_tflops: float = opt(
        0.0,
        "dense bf16 peak of one device for the figure MFU, TFLOP/s (10^12); 0 takes that of a known GPU, and "
        "shows no MFU on another",
        kind="environment",
    )

    def contradictions(self) -> list[str]:
        """Return what cannot be: a time in which no rank can start."""
        if not 0 < self.hang_seconds < _LEAST_HANG:
            return []
        return [
            f"--hang-seconds {self.hang_seconds:g} ends every training while it starts: expected 0, or "
            f"{_LEAST_HANG} or more"
        ]
