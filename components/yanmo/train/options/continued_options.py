"""A schedule of its own for a training that goes on from a model (continued pre-training).

The form of a channel that trains every night is the same on its first night, which begins with a new model,
and on all others, which go on from the champion. A model that goes on needs fewer steps, and its learning
rate is warmed up again to a lower peak and decayed again: re-warming and re-decaying (Gupta et al.,
"Continual Pre-Training of Large Language Models: How to (re)warm your model?", 2023; Ibrahim et al.,
"Simple and Scalable Strategies to Continually Pre-train Large Language Models", 2024).

These options are no part of a key. What they make of the others is: steps, warm-up and learning rates are in
the key, and are recorded, as the training has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import Options, opt


@dataclass(frozen=True, kw_only=True)
class ContinuedOptions(Options, group="continued"):
    """What differs where the training goes on from a model (docs/nights.md)"""

    continued_steps: int = opt(
        0, "--steps of a training that goes on from a model; 0 is the same", kind="environment"
    )
    continued_warmup_steps: int = opt(
        0,
        "--warmup-steps of a training that goes on from a model (re-warming); 0 is the same",
        kind="environment",
    )
    continued_peak: float = opt(
        1.0,
        "peak learning rates of a training that goes on from a model, as a share of those of a new one",
        kind="environment",
        above=0,
        most=10,
    )
