"""The learning rate as a function of the step, so that a resumed run needs no scheduler state.

The exception is `plateau`, which depends on validations: `Plateau` has a state, which checkpoints hold.

The form of a channel that trains every night is the same on its first night, which begins with a new model,
and on all others, which go on from the champion. A model that goes on needs fewer steps, and its learning
rate is warmed up again to a lower peak and decayed again: re-warming and re-decaying (Gupta et al.,
"Continual Pre-Training of Large Language Models: How to (re)warm your model?", 2023; Ibrahim et al.,
"Simple and Scalable Strategies to Continually Pre-train Large Language Models", 2024).

`ContinuedOptions` are no part of a key. What they make of the others is: steps, warm-up and learning rates
are in the key, and are recorded, as the training has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, assert_never, cast, get_args

from yanmo.options.fields import Options, Scalar, opt
from yanmo.train.options.recipe_options import BUNDLED

_WARMUP, _WARMUP_SHARE = 30, 15
ScheduleName = Literal["linear", "cosine", "constant", "wsd", "sgdr", "plateau"]
SCHEDULES: tuple[str, ...] = get_args(ScheduleName)
_PLATEAU_FACTOR = 0.5
"""Factor by which the learning rate falls on a plateau."""


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(Options, group="schedule"):
    """Steps, learning-rate schedule, early stopping."""

    steps: int = opt(
        450,
        "optimizer steps of the whole training",
        least=1,
        form="train_steps",
        auto=f"{BUNDLED}; a new model reads a small text about twice",
        often=True,
    )
    epochs: float = opt(
        0.0,
        "passes over the training text, in the place of --steps, which follow from it and from the batch; 0 "
        "leaves it to --steps",
        kind="environment",
    )
    schedule: str = opt(
        "linear",
        "learning-rate schedule from the end of the warm-up to the floor",
        choices=SCHEDULES,
        trial="constant",
    )
    warmup_steps: int = opt(
        _WARMUP,
        "steps over which the learning rate rises from 0 to its peak",
        trial=1,
        auto="{default}, or a fifteenth of --steps where that is less",
    )
    warmup_share: float = opt(
        0.0,
        "warm-up as a share of the steps, in the place of --warmup-steps; 0 leaves it to --warmup-steps",
        kind="environment",
        below=1,
    )
    floor: float = opt(0.0, "last learning rate, as a share of the peak", most=1)
    decay_share: float = opt(
        0.2, "wsd: share of the steps, at the end, in which the learning rate falls to the floor", most=1
    )
    restart_steps: int = opt(
        0, "sgdr: steps of each cosine after the warm-up; 0 takes a quarter of the steps that follow it"
    )
    plateau_validations: int = opt(
        3, "plateau: validations without a gain before the learning rate is halved", least=1
    )
    early_stopping: int = opt(
        0,
        "validations without a gain after which the training ends with the best model; 0 never ends it early",
        trial=0,
    )
    early_min_delta: float = opt(
        0.0,
        "bits per character by which a validation must improve to count as a gain, for early stopping "
        "and plateau",
    )

    @classmethod
    def left_open(cls, values: dict[str, Any]) -> dict[str, Scalar]:
        """Return a warm-up that fits a short training; the `contradictions` below speak of a given one."""
        return {"warmup_steps": min(_WARMUP, max(1, values["steps"] // _WARMUP_SHARE))}

    def contradictions(self) -> list[str]:
        """Return the options that contradict each other."""
        if self.warmup_steps >= self.steps > 1 and self.schedule not in ("constant", "plateau"):
            fewer = self.steps // _WARMUP_SHARE
            return [
                f"--warmup-steps {self.warmup_steps} leaves none of --steps {self.steps} for the "
                f"{self.schedule} schedule: set it to fewer, such as {fewer} (in a pipeline: "
                f"train.warmup_steps={fewer})"
            ]
        return []


@dataclass(frozen=True, kw_only=True)
class ContinuedOptions(Options, group="continued"):
    """Of a training that goes on from a model (docs/tutorials/every-night.md)"""

    continued_steps: int = opt(
        0, "--steps of a training that goes on from a model; 0 is the same", kind="environment"
    )
    continued_peak: float = opt(
        1.0,
        "peak learning rates of a training that goes on from a model, as a share of those of a new one",
        kind="environment",
        above=0,
        most=10,
    )


class Schedule:
    """The learning rate at each step, as a factor of its peak; step 0 is the first.

    wsd is constant, then linear over the last `decay_share` of the steps (Hu et al., MiniCPM, 2024); sgdr has
    cosines with restarts (Loshchilov and Hutter, 2017); plateau is constant, times the multiplier of
    `Plateau`. With linear, cosine and wsd the last step approaches the floor, with sgdr that of each cosine.
    """

    def __init__(self, options: ScheduleOptions) -> None:
        self._o = options

    def at(self, step: int) -> float:
        """Return the factor of the peak learning rate at a step."""
        o = self._o
        if step < o.warmup_steps:
            return (step + 1) / (o.warmup_steps + 1)
        return o.floor + (1 - o.floor) * self._share(step)

    def _share(self, step: int) -> float:
        """Return the height above the floor at a step after the warm-up, from 1 (the peak) to 0."""
        o, name = self._o, cast(ScheduleName, self._o.schedule)
        after, length = step - o.warmup_steps, max(o.steps - o.warmup_steps, 1)
        match name:
            case "constant" | "plateau":
                return 1.0
            case "linear":
                return 1 - after / length
            case "cosine":
                return _cosine(after / length)
            case "wsd":
                return min(1.0, (o.steps - step) / max(round(o.decay_share * o.steps), 1))
            case "sgdr":
                cycle = o.restart_steps or max(length // 4, 1)
                return _cosine(after % cycle / cycle)
            case _:
                assert_never(name)


def _cosine(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * done))


@dataclass
class ValidationPatience:
    """Counts validations without a gain, for early stopping and the plateau; a checkpoint holds it."""

    most: int
    """Validations without a gain before the patience runs out."""
    min_delta: float
    """Bits per character that count as a gain."""
    best: float | None = None
    """Bits per character; None before the first validation, as JSON has no infinity."""
    waited: int = 0

    def update(self, bits_per_character: float) -> bool:
        """Note a validation; returns whether the patience has run out, after which counting starts again.

        NaN is no gain.
        """
        if bits_per_character < (math.inf if self.best is None else self.best - self.min_delta):
            self.best, self.waited = bits_per_character, 0
            return False
        self.waited += 1
        if self.waited < self.most:
            return False
        self.waited = 0
        return True


@dataclass
class Plateau:
    """A factor that falls each time validations stop improving, down to the floor. A checkpoint holds it."""

    patience: ValidationPatience
    floor: float
    multiplier: float = 1.0

    def update(self, bits_per_character: float) -> bool:
        """Note a validation; returns whether the learning rate fell."""
        before = self.multiplier
        if self.patience.update(bits_per_character):
            self.multiplier = max(self.multiplier * _PLATEAU_FACTOR, self.floor)
        return self.multiplier < before
