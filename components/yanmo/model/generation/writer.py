"""A decoder that writes texts, a token of each at a time, and the keys and values that it keeps of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from yanmo.model.decoder import Decoder, DecoderConfig

_STEP = 64
"""Tokens by which the room grows."""


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


class KeptKeys:
    """Keys and values of some texts, a row each, which need not be of one length.

    A row's tokens lie in its first columns, whatever the other rows hold: so a text's positions, and what
    it reads, are the same alone and among others, and a row can be given to another text at any time.

    B = rows, T = columns, N = tokens read now, H = query heads, K = key/value heads, E = head width
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

    def behind(self, rows: Sequence[int], counts: Sequence[int]) -> NewTokens:
        """Return the layout of `counts` new tokens behind those of some rows, which get room for them."""
        self._make_room(max(self.lengths[row] + new for row, new in zip(rows, counts, strict=True)))
        return NewTokens(self, rows, max(counts))

    @torch.inference_mode()
    def _make_room(self, columns: int) -> None:
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


class NewTokens:
    """A `Layout` (decoder.py) of tokens behind those that are kept: theirs are kept too as they are read."""

    def __init__(self, kept: KeptKeys, rows: Sequence[int], new: int) -> None:
        """Lay out `new` tokens of each row, padding included."""
        device, starts = kept.tensors[0].device, [kept.lengths[row] for row in rows]
        self._layers = iter(kept.tensors)
        self._rows = None if list(rows) == list(range(len(kept.lengths))) else list(rows)
        self._start = starts[0] if len(set(starts)) == 1 else -1
        """Where all rows begin; -1 where they begin in different places."""
        self._end = max(starts) + new
        self._is_causal = self._start == 0 and new > 1
        self._mask: Tensor | None = None
        at_N = torch.arange(new, device=device)
        self.positions = at_N[None] + self._start
        """(B or 1, N)"""
        if (self._start > 0 and new > 1) or self._start < 0:
            at_BN = torch.tensor(starts, device=device)[:, None] + at_N
            self.positions = at_BN.clamp(max=kept.context - 1)  # padding alone can lie beyond
            self._end = min(self._end, kept.tensors[0].shape[2])
            self._mask = (torch.arange(self._end, device=device) <= at_BN[:, :, None])[:, None]

    def attend(self, q_BNHE: Tensor, k_BNKE: Tensor, v_BNKE: Tensor) -> Tensor:
        """Return the mixed values of the next layer: (B, N, H, E)."""
        k, v = self._with_kept(next(self._layers), k_BNKE, v_BNKE)
        mixed = F.scaled_dot_product_attention(
            q_BNHE.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=self._mask,
            is_causal=self._is_causal,
            enable_gqa=q_BNHE.shape[2] != k.shape[2],
        )
        return mixed.transpose(1, 2)

    def _with_kept(self, tensor: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values that the new tokens see, after theirs are kept in `tensor`."""
        if self._start >= 0:
            room = tensor[:, :, self._start : self._start + k.shape[1]]
            if self._rows is None:
                room[0], room[1] = k, v
            else:
                room[0, self._rows], room[1, self._rows] = k, v
        else:
            begins = torch.arange(len(k), device=k.device)[:, None] * tensor.shape[2]
            flat = (begins + self.positions).flatten()
            for old, new in zip(tensor, (k, v), strict=True):
                old.flatten(0, 1).index_copy_(0, flat, new.flatten(0, 1))
        if self._start == 0:
            return k, v
        return tensor[0, :, : self._end], tensor[1, :, : self._end]
