"""How a training reacts to steps that go wrong: skip, rewind, give up.

A step whose gradient is not finite changes no weight on any rank (the engine sees to that), and its data
counts as used. After `nonfinite_steps` such steps in a row, or if the loss stays `spike_nats` above its
recent mean, the training goes back to the newest checkpoint from before the trouble and continues with the
data after it. PaLM did this by hand (arXiv 2204.02311, section 5.1: restart some 100 steps before a spike and
skip 200 to 500 batches; the spike did not come back). After `rewinds` rewinds the training ends: then the
options are wrong, not the data.

All ranks see equal numbers and so decide alike.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

_RECENT_STEPS = 50
"""Steps whose mean loss a spike is compared with; no spike is seen before half of them are done."""
_SPIKE_STEPS = 5
"""Steps in a row for which the loss must stay up: a single hard batch is no spike."""


@dataclass(frozen=True)
class Trouble:
    """Why the training has to go back."""

    first_step: int
    """The first step that went wrong, counted from 1."""
    reason: str


@dataclass
class Health:
    """Watches the losses of consecutive steps."""

    nonfinite_steps: int
    """Skipped steps in a row that are trouble; 0: no number is."""
    spike_nats: float
    """Rise of the loss that is a spike, nats per token; 0: none is."""
    halvings: int = 0
    """Steps in a row that fp16's loss scale may take to come down: a finite loss whose gradient is not. They
    are no trouble; more of them are counted as others are."""
    _bad: int = 0
    _halved: int = 0
    _high: int = 0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))

    def note(self, step: int, loss: float, moved: bool) -> Trouble | None:
        """Note a step; returns trouble if there is enough evidence for it now. Call for each step in order.

        Args:
            step: number of the step, from 1.
            loss: its mean loss, nats per token.
            moved: whether it moved the weights.
        """
        if not moved and math.isfinite(loss) and self._halved < self.halvings:
            self._halved += 1
            return None
        if not moved or not math.isfinite(loss):
            self._bad += 1
            if self.nonfinite_steps and self._bad >= self.nonfinite_steps:
                what = f"{self._bad} steps in a row had a loss or gradient that is not finite"
                return Trouble(step - self._bad + 1, what)
            return None
        self._bad = self._halved = 0
        return self._spike(step, loss)

    def _spike(self, step: int, loss: float) -> Trouble | None:
        recent = self._recent
        mean = sum(recent) / len(recent) if len(recent) >= _RECENT_STEPS // 2 else math.inf
        if not self.spike_nats or loss <= mean + self.spike_nats:
            self._high = 0
            recent.append(loss)
            return None
        self._high += 1
        if self._high < _SPIKE_STEPS:
            return None
        what = f"the loss stood {self.spike_nats:g} nats above its mean of {mean:.3f} for {self._high} steps"
        return Trouble(step - self._high + 1, what)

    def state(self) -> dict[str, Any]:
        """State for a checkpoint."""
        state = {"bad": self._bad, "high": self._high, "recent": list(self._recent)}
        return state | ({"halved": self._halved} if self.halvings else {})

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._bad, self._high = state["bad"], state["high"]
        self._halved = state.get("halved", 0)
        self._recent = deque(state["recent"], maxlen=_RECENT_STEPS)
