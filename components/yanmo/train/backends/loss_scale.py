"""The loss scaling that fp16 needs: what both backends agree on; torch is not imported for it.

fp16 has no numbers below 6e-8: most gradients of a language model would be 0. So the loss is multiplied by a
scale before the backward pass, and the gradient divided by it in fp32, before it is clipped. Where a gradient
overflows (65,504 is the largest number), the step changes nothing and the scale is halved; after `WINDOW`
good steps in a row it is doubled (Micikevicius et al., arXiv 1710.03740, section 3.2). Both backends begin
with the scale and the window of torch.amp.GradScaler. bf16 has the range of fp32 and needs none of this.
"""

from __future__ import annotations

from typing import TypedDict

FIRST_POWER = 16
"""The first scale, as a power of 2."""
WINDOW = 2000
"""Good steps in a row after which the scale is doubled."""


class LossScale(TypedDict, total=False):
    """State of the scaling, in checkpoints of any backend; empty where there is none."""

    scale: float
    good_steps: int
    """Since the scale last changed."""
