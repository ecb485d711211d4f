"""A decoder that writes texts, a token of each at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from yanmo.model.decoder import Decoder
from yanmo.model.generation.kept_keys import KeptKeys


class Writer:
    """A decoder for writing: its weights are fused, and no longer change."""

    def __init__(self, model: Decoder) -> None:
        model.fuse()
        self.model, self.config = model, model.config

    @property
    def device(self) -> torch.device:
        """Return where it computes."""
        return self.model.lm_head.weight.device

    def room(self, rows: int) -> KeptKeys:
        """Return room for the keys and values of `rows` texts."""
        return KeptKeys(self.config, rows, self.model.lm_head.weight)

    @torch.inference_mode()
    def read(self, kept: KeptKeys, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Return logits (rows, vocabulary) in fp32 after the last token of each row.

        Args:
            kept: what the rows hold already; what is read now is added.
            rows: all rows of `kept` in their order, or any that hold nothing yet.
            ids: the tokens that each of them reads, at least one; with what the row holds, they must fit
                into the context.
        """
        widest = max(map(len, ids))
        padded = torch.tensor([[*each, *[each[-1]] * (widest - len(each))] for each in ids])
        layout = kept.behind(rows, list(map(len, ids)))
        x_BND = self.model.read(padded.to(self.device), layout)
        for row, each in zip(rows, ids, strict=True):
            kept.lengths[row] += len(each)
        if len({len(each) for each in ids}) == 1:
            last = x_BND[:, -1]  # the head reads one position of each row, not all
        else:
            last = x_BND[range(len(ids)), [len(each) - 1 for each in ids]]
        logits: Tensor = self.model.lm_head(last)
        return logits.float()
