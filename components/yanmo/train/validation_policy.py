"""What validations decide: when the training ends early, and how far a plateau lowers the learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from yanmo.common.words import plural
from yanmo.train.config import TrainConfig
from yanmo.train.schedule import Plateau, ValidationPatience


@dataclass
class ValidationPolicy:
    """Decides after every validation; all ranks see the same value and so decide alike."""

    stopping: ValidationPatience | None
    plateau: Plateau | None
    is_over: bool = False
    """Whether the training should end: there was no gain in --early-stopping validations."""

    @classmethod
    def of(cls, options: TrainConfig) -> ValidationPolicy:
        """Return the policy that the options ask for."""
        delta = options.early_min_delta
        plateau = None
        if options.schedule == "plateau":
            patience = ValidationPatience(options.plateau_validations, delta)
            plateau = Plateau(patience, options.plateau_factor, options.floor)
        stopping = ValidationPatience(options.early_stopping, delta) if options.early_stopping else None
        return cls(stopping, plateau)

    @property
    def multiplier(self) -> float:
        """Factor of the learning rate."""
        return self.plateau.multiplier if self.plateau else 1.0

    def update(self, bits_per_character: float) -> list[str]:
        """Note a validation; returns what was decided, a sentence each."""
        found = []
        if self.plateau and self.plateau.update(bits_per_character):
            found.append(f"learning rate times {self.plateau.multiplier:g}")
        if self.stopping and self.stopping.update(bits_per_character):
            self.is_over = True
            found.append(f"no gain in {plural(self.stopping.most, 'validation')}: the training ends")
        return found

    def state(self) -> dict[str, Any]:
        """State for a checkpoint, as JSON values."""
        return {
            "stopping": self.stopping.state_dict() if self.stopping else None,
            "plateau": self.plateau.state_dict() if self.plateau else None,
            "is_over": self.is_over,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        if self.stopping and state["stopping"]:
            self.stopping.load_state_dict(state["stopping"])
        if self.plateau and state["plateau"]:
            self.plateau.load_state_dict(state["plateau"])
        self.is_over = state["is_over"]


def mean_of(found: dict[str, float]) -> float:
    """Return the mean over genres, on which decisions rest; inf if a validation has no finite one."""
    mean = found.get("mean", math.inf)
    return mean if math.isfinite(mean) else math.inf
