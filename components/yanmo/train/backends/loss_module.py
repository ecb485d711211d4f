"""The module that a backend trains: the decoder and its loss."""

from __future__ import annotations

from torch import Tensor, nn

from yanmo.model.decoder import Decoder
from yanmo.model.loss import linear_cross_entropy


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
    ) -> Tensor:
        """The summed loss, in nats, of the positions that have a target, times `scale`.

        Args:
            at: these positions in the flattened rows; None looks them up, which waits for the device.
            bounds: see `yanmo.model.attention.documents`.
        """
        hidden_BTD = self.decoder.hidden(ids_BT, segments_BT, bounds)
        if at is None:
            at = (targets_BT >= 0).flatten().nonzero().squeeze(1)
        hidden_ND = hidden_BTD.flatten(0, 1).index_select(0, at)
        return linear_cross_entropy(hidden_ND, self.decoder.lm_head.weight, targets_BT.flatten()[at], scale)
