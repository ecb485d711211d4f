"""The module that a backend trains: the decoder and its loss; and the scale of that loss in fp16.

fp16 has no numbers below 6e-8: most gradients of a language model would be 0. So the loss is multiplied by a
scale before the backward pass, and the gradient divided by it in fp32, before it is clipped. Where a gradient
overflows (65,504 is the largest number), the step changes nothing and the scale is halved; after `WINDOW`
good steps in a row it is doubled (Micikevicius et al., arXiv 1710.03740, section 3.2). Both backends begin
with the scale and the window of torch.amp.GradScaler. bf16 has the range of fp32 and needs none of this.
"""

from __future__ import annotations

from typing import Any, TypedDict

from torch import Tensor, nn

from yanmo.model.decoder import Decoder
from yanmo.model.frequent_loss import Apart, frequent_cross_entropy
from yanmo.model.loss import linear_cross_entropy

FIRST_POWER = 16
"""The first scale, as a power of 2."""
WINDOW = 2000
"""Good steps in a row after which the scale is doubled."""


class LossScale(TypedDict, total=False):
    """State of the scaling, in checkpoints of any backend; empty where there is none."""

    scale: float
    good_steps: int
    """Since the scale last changed."""


class LossModule(nn.Module):
    """The decoder and its loss."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        ids_BT: Tensor,
        segments_BT: Tensor,
        targets_BT: Tensor,
        scale: float,
        at: Tensor | None = None,
        bounds: Tensor | None = None,
        apart: tuple[Any, ...] | None = None,
    ) -> Tensor:
        """Return the summed loss, in nats, of the positions that have a target, times `scale`.

        Args:
            at: these positions in the flattened rows; None looks them up, which waits for the device.
            bounds: see `yanmo.model.attention.documents`.
            apart: the fields of an `Apart`: positions that compute the logits of frequent tokens alone; None
                where all compute all.
        """
        hidden_BTD = self.decoder.hidden(ids_BT, segments_BT, bounds)
        if at is None:
            at = (targets_BT >= 0).flatten().nonzero().squeeze(1)
        hidden_ND = hidden_BTD.flatten(0, 1).index_select(0, at)
        targets_N, weight_VD = targets_BT.flatten()[at], self.decoder.lm_head.weight
        if apart is not None:
            return frequent_cross_entropy(hidden_ND, weight_VD, targets_N, scale, Apart(*apart))
        return linear_cross_entropy(hidden_ND, weight_VD, targets_N, scale, self.decoder.compiles_loss)
