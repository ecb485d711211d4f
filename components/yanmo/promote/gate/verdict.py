"""What goes into the gate and what comes out: rules, evidence, checks, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from yanmo.common.words import Words as Words
from yanmo.promote.gate.limits import Limit
from yanmo.promote.gate.noise import Noise

Outcome = Literal["promoted", "not promoted", "not valid"]

VERDICT_SCHEMA = "yanmo.verdict/4"
"""Schema of verdict.json; since 4 it lists its nights."""


LEVEL = 0.95
"""Level of the bootstrap interval whose lower end must be above 0."""
ASSUMED_NOISE = 0.0025
"""The seed's standard deviation as a share of the bits where `yanmo train --twins` measured none."""
LEAST_NOISE = 0.002
"""The least standard deviation of the seed, used where twins measured less: short twins may scatter less than
whole trainings (0.076 % against 0.180 % in one recipe, docs/reference/promote.md)."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The numbers in the rules: options of the stage, and those above."""

    min_gain: float
    max_genre_loss: float
    level: float
    draws: int
    seed: int
    max_contamination: float = 1.0
    limits: tuple[Limit, ...] = ()
    must_measure: bool = False
    """Whether nothing is promoted whose contamination was not measured."""
    month_error: float = 0.05
    """Chance of a change of champions in a month without progress."""
    nights_per_month: int = 30
    assumed_noise: float = 0.0
    """The seed's standard deviation, as a share of the bits, where nobody measured it."""
    least_noise: float = 0.0
    """The least standard deviation that is used where one was measured."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known about the challenger in addition to its bits."""

    same_model: bool = False
    """Whether both evaluations are of one model."""
    contamination: float | None = None
    """Share of the evaluated documents that are in its training text; None where that was not measured."""
    guard_metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Name in `limits.LIMIT_METRICS` -> value; None or absent where it was not measured."""
    rolled_back: str = ""
    """When, by whom and why it was taken down before; empty if it was not."""
    noise: Noise | None = None
    """The spread that the recipe's seed makes; None where nobody measured it."""
    from_champion: bool = False
    """Whether its training went on from the champion itself."""
    before: tuple[float, ...] = ()
    """Gains, as shares, of earlier nights of this recipe against this champion, the oldest first."""


@dataclass(frozen=True)
class Check:
    """One rule, applied."""

    name: str
    passed: bool | None
    """None: what it needs was not measured, and that is accepted."""
    rule: Words
    finding: Words


@dataclass(frozen=True)
class Verdict:
    """What the rules say."""

    outcome: Outcome
    sentence: Words
    checks: tuple[Check, ...]
    gain: dict[str, Any] | None = None
    """Mean over genres: bits, share, interval; None without a champion."""
    genres: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Genre -> bits per character of both, gain and its interval."""
    confirmation: dict[str, Any] | None = None
    """The gain on the confirmation split; None unless rule 10 looked at it."""
    noise: dict[str, Any] | None = None
    """The spread that the seed makes, how it is known, and the margin; None without a champion."""

    @property
    def promote(self) -> bool:
        """Whether the challenger becomes champion."""
        return self.outcome == "promoted"
