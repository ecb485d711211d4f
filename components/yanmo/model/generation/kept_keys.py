"""Keys and values of the tokens that were read, so that each token is read once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from yanmo.model.decoder import DecoderConfig

_STEP = 64
"""Tokens by which the room grows."""


class KeptKeys:
    """Keys and values of some texts, a row each, which need not be of one length.

    A row's tokens lie in its first columns, whatever the other rows hold: so a text's positions, and what
    it reads, are the same alone and among others, and a row can be given to another text at any time.

    B = rows, T = columns, K = key/value heads, E = head width
    """

    @torch.inference_mode()
    def __init__(self, config: DecoderConfig, rows: int, like: Tensor) -> None:
        """Room for `rows` texts, on the device and in the dtype of `like`."""
        self.context = config.max_position_embeddings
        self._shape = (config.num_key_value_heads, config.head_dim)
        self._like = like
        self.tensors = [self._room(rows, 0) for _ in range(config.num_hidden_layers)]
        """One of each layer, (2, B, T, K, E): keys, then values."""
        self.lengths = [0] * rows
        """Tokens that each row holds."""

    def _room(self, rows: int, columns: int) -> Tensor:
        return self._like.new_zeros(2, rows, columns, *self._shape)

    @torch.inference_mode()
    def make_room(self, columns: int) -> None:
        """See that every row has at least so many columns; at most the model's context."""
        have = self.tensors[0].shape[2]
        if columns <= have:
            return
        wanted = min(max(columns + _STEP, have + have // 2), self.context)
        for i, old in enumerate(self.tensors):
            new = self._room(len(self.lengths), wanted)
            new[:, :, :have] = old
            self.tensors[i] = new

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order; a row may come several times."""
        chosen = torch.tensor(rows, device=self._like.device)
        self.tensors = [each.index_select(1, chosen) for each in self.tensors]
        self.lengths = [self.lengths[row] for row in rows]

    @torch.inference_mode()
    def copy_row(self, source: int, to: int) -> None:
        """Let another row hold what `source` holds."""
        for each in self.tensors:
            each[:, to] = each[:, source]
        self.lengths[to] = self.lengths[source]
