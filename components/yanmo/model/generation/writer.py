"""A decoder arranged to write texts, a token of each at a time.

One product gives queries, keys and values, another gate and up; rotary angles are computed once. Each sum
is that of `Decoder`, in the same order: where four or more rows are multiplied, MKL gives each row the same
bits however many there are, and fused products the same as single ones.

    B = rows, N = tokens read now, T = tokens kept, D = model width, H = query heads, K = key/value heads,
    E = head width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from yanmo.model.decoder import Block, Decoder, rotary_tables
from yanmo.model.generation.kept_keys import KeptKeys


class _Layer(NamedTuple):
    before: Tensor
    """(D,): weights of the norm before attention."""
    qkv: Tensor
    """((H + 2K) E, D)"""
    biases: Tensor | None
    """((H + 2K) E,)"""
    head_norms: Tensor | None
    """(H + K, E): weights of the norms of queries and keys."""
    o: Tensor
    """(D, H E)"""
    between: Tensor
    """(D,): weights of the norm before the feed-forward network."""
    gate_up: Tensor
    """(2 I, D), I = width of the feed-forward network"""
    down: Tensor
    """(D, I)"""


class Writer:
    """A decoder's weights, rearranged: for writing with a model whose weights no longer change."""

    @torch.inference_mode()
    def __init__(self, model: Decoder) -> None:
        self.config = config = model.config
        self.embedding = model.model.embed_tokens.weight.detach()
        self._layers = [_arranged(cast(Block, layer)) for layer in model.model.layers]
        self._norm, self._head = model.model.norm.weight.detach(), model.lm_head.weight.detach()
        self._cos, self._sin = _angles(model, config.max_position_embeddings)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.embedding.device

    def room(self, rows: int) -> KeptKeys:
        """Room for the keys and values of `rows` texts."""
        return KeptKeys(self.config, rows, self.embedding)

    @torch.inference_mode()
    def read(self, kept: KeptKeys, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Logits (rows, vocabulary) in fp32 after the last token of each row.

        Args:
            kept: what the rows hold already; what is read now is added.
            rows: all rows of `kept` in their order, or any that hold nothing yet.
            ids: the tokens that each of them reads, at least one; with what the row holds, they must fit
                into the context.
        """
        widest = max(map(len, ids))
        starts = [kept.lengths[row] for row in rows]
        kept.make_room(max(start + len(each) for start, each in zip(starts, ids, strict=True)))
        padded = [[*each, *[each[-1]] * (widest - len(each))] for each in ids]
        place = _Place(rows, starts, widest, kept, self.device)
        x_BND = F.embedding(torch.tensor(padded, device=self.device), self.embedding)
        cos, sin = place.turned(self._cos), place.turned(self._sin)
        for layer, tensor in zip(self._layers, kept.tensors, strict=True):
            x_BND = x_BND + self._attended(layer, x_BND, cos, sin, tensor, place)
            both = F.linear(self._normed(x_BND, layer.between), layer.gate_up)
            gate, up = both.chunk(2, dim=-1)
            x_BND = x_BND + F.linear(F.silu(gate).mul_(up), layer.down)
        for row, start, each in zip(rows, starts, ids, strict=True):
            kept.lengths[row] = start + len(each)
        if len({len(each) for each in ids}) == 1:
            last = x_BND[:, -1]  # the head reads one position of each row, not all
        else:
            last = x_BND[range(len(ids)), [len(each) - 1 for each in ids]]
        return F.linear(self._normed(last, self._norm), self._head).float()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm, the operations of `torch.nn.RMSNorm` on a CPU one by one: they take half its time."""
        if not x.is_cpu or x.dtype != torch.float32:
            return F.rms_norm(x, x.shape[-1:], None, self.config.rms_norm_eps) * weight
        scale = x.pow(2).mean(-1, keepdim=True).add_(self.config.rms_norm_eps).rsqrt_()
        return (x * scale).mul_(weight)

    def _attended(
        self, layer: _Layer, x_BND: Tensor, cos: Tensor, sin: Tensor, tensor: Tensor, place: _Place
    ) -> Tensor:
        """What attention adds; the keys and values of the new tokens are added to `tensor`."""
        H, K, E = self.config.num_attention_heads, self.config.num_key_value_heads, self.config.head_dim
        qkv = F.linear(self._normed(x_BND, layer.before), layer.qkv, layer.biases)
        qkv = qkv.view(*x_BND.shape[:2], H + 2 * K, E)
        qk = qkv[:, :, : H + K]
        if layer.head_norms is not None:
            qk = self._normed(qk, layer.head_norms)
        qk = (qk * cos).add_(qk.roll(E // 2, -1).mul_(sin))
        k, v = place.kept(tensor, qk[:, :, H:], qkv[:, :, H + K :])
        mixed = F.scaled_dot_product_attention(
            qk[:, :, :H].transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=place.mask,
            is_causal=place.is_causal,
            enable_gqa=H != K,
        )
        return F.linear(mixed.transpose(1, 2).flatten(2), layer.o)


class _Place:
    """Where in the kept keys some new tokens of some rows belong, and what they see."""

    def __init__(
        self, rows: Sequence[int], starts: Sequence[int], new: int, kept: KeptKeys, device: torch.device
    ) -> None:
        self._rows, self._new = rows, new
        self._are_all = list(rows) == list(range(len(kept.lengths)))
        self._start = starts[0] if len(set(starts)) == 1 else -1
        """Where all rows begin; -1 where they begin in different places."""
        self._end = max(starts) + new
        self.is_causal = self._start == 0 and new > 1
        self.mask: Tensor | None = None
        if self._start >= 0 and (self._start == 0 or new == 1):
            return
        at_BN = torch.tensor(starts, device=device)[:, None] + torch.arange(new, device=device)
        self._at_BN = at_BN.clamp_(max=kept.context - 1)  # padding alone can lie beyond
        self._end = min(self._end, kept.tensors[0].shape[2])
        self.mask = (torch.arange(self._end, device=device) <= at_BN[:, :, None])[:, None]

    def turned(self, table_TE: Tensor) -> Tensor:
        """The rows of a table of angles that belong to the new tokens."""
        if self.mask is None:
            return table_TE[self._start : self._start + self._new, None]
        return table_TE[self._at_BN][:, :, None]

    def kept(self, tensor: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values that the new tokens see, after theirs are added."""
        if self._start >= 0:
            room = tensor[:, :, self._start : self._start + self._new]
            if self._are_all:
                room[0], room[1] = k, v
            else:
                room[0, self._rows], room[1, self._rows] = k, v
        else:
            columns = tensor.shape[2]
            begins = torch.arange(len(self._rows), device=k.device)[:, None] * columns
            flat = (begins + self._at_BN).flatten()
            for old, new in zip(tensor, (k, v), strict=True):
                old.flatten(0, 1).index_copy_(0, flat, new.flatten(0, 1))
        if self._start == 0:
            return k, v
        seen = tensor[:, :, : self._end]
        return seen[0], seen[1]


def _arranged(block: Block) -> _Layer:
    attention, mlp = block.self_attn, block.mlp
    qkv, biases, norms = attention.joined()
    return _Layer(
        block.input_layernorm.weight.detach(),
        qkv,
        biases,
        norms,
        attention.o_proj.weight.detach(),
        block.post_attention_layernorm.weight.detach(),
        torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        mlp.down_proj.weight.detach(),
    )


def _angles(model: Decoder, positions: int) -> tuple[Tensor, Tensor]:
    """Cosines, and sines with the sign of the half that they are added to: (T, E) each."""
    weight = model.lm_head.weight
    at = torch.arange(positions, device=weight.device)[None]
    cos, sin = (table[0, :, 0] for table in rotary_tables(at, model.config, weight.dtype))
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
