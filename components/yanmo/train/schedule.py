"""The learning rate as a function of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math


def multiplier(step: int, *, steps: int, warmup_steps: int, schedule: str, floor: float) -> float:
    """What the peak learning rate is multiplied with in `step` (0 is the first).

    Args:
        schedule: linear, cosine or constant, after a linear warm-up.
        floor: share of the peak that the last step approaches.
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    done = (step - warmup_steps) / max(steps - warmup_steps, 1)
    if schedule == "constant":
        return 1.0
    rest = 1 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return floor + (1 - floor) * rest
