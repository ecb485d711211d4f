"""RMSNorm and short attention on a CPU in fp32, with a backward pass of their own.

torch computes RMSNorm on a CPU as some ten operations and differentiates each of them, and its fused
attention copies keys and values that query heads share. Neither function can be differentiated twice.

    B = rows, T = positions in a row, H = query heads that share one key/value head, E = width of a head
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SHORT = 64
"""Most positions of a row for which `one_head_attention` was faster than torch's."""


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm (Zhang and Sennrich, 2019), faster on a CPU in fp32."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` / sqrt(mean(x^2) + eps) along the last dimension, times the weight; shape of `x`."""
        if not _is_ours(x):
            return super().forward(x)
        if not torch.is_grad_enabled():  # the same sums, without the price of a call of autograd's
            return (x * inverse_rms(x, self.eps)).mul_(self.weight)
        out: Tensor = _Norm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return out


class HeadNorms(nn.Module):
    """Several RMSNorms in one, one for each head; without a gradient."""

    weight: Tensor

    def __init__(self, weight_HE: Tensor, eps: float | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight_HE, persistent=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` (..., H, E), each head normalized by its weights."""
        if not _is_ours(x):
            return F.rms_norm(x, x.shape[-1:], None, self.eps) * self.weight
        return (x * inverse_rms(x, self.eps)).mul_(self.weight)


def inverse_rms(x: Tensor, eps: float | None) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) along the last dimension, which becomes 1 wide; without a gradient."""
    squares: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    return squares.div_(x.shape[-1]).add_(eps or 0.0).rsqrt_()


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        inverse = inverse_rms(x, eps)
        normed = x * inverse
        ctx.save_for_backward(normed, weight, inverse)
        return normed * weight

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # type: ignore[override]
        normed, weight, inverse = ctx.saved_tensors
        of_x, of_weight, _ = ctx.needs_input_grad
        product, d_x = d_out * normed, None
        d_weight = product.flatten(0, -2).sum(0) if of_weight else None
        if of_x:
            mean = (product @ weight).div_(len(weight)).unsqueeze(-1)
            d_x = (d_out * weight).addcmul_(normed, mean, value=-1).mul_(inverse)
        return d_x, d_weight, None


def suits_one_head(q_BTHE: Tensor, k_BTKE: Tensor) -> bool:
    """Return whether `one_head_attention` can be used, and is faster than torch's attention."""
    return _is_ours(q_BTHE) and k_BTKE.shape[2] == 1 and q_BTHE.shape[1] <= _SHORT


def one_head_attention(q_BTHE: Tensor, k_BT1E: Tensor, v_BT1E: Tensor, mask_B1TT: Tensor) -> Tensor:
    """Attention whose query heads share one key/value head: (B, T, H, E); scores are scaled by E^-0.5.

    Args:
        mask_B1TT: what to add to the scores, (B or 1, 1, T, T).
    """
    out: Tensor = _OneHead.apply(q_BTHE, k_BT1E, v_BT1E, mask_B1TT)  # type: ignore[no-untyped-call]
    return out


class _OneHead(torch.autograd.Function):
    """The query heads of a position are rows of one matrix, so that nothing is copied for them."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        B, T, H, E = q.shape
        q, k, v = q.reshape(B, T * H, E), k.reshape(B, T, E), v.reshape(B, T, E)
        scores = _product(q, k.mT, E**-0.5)
        scores.view(B, T, H, T).add_(mask.transpose(1, 2))
        share = torch.softmax(scores, -1)
        ctx.save_for_backward(q, k, v, share)
        return torch.bmm(share, v).view(B, T, H, E)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        q, k, v, share = ctx.saved_tensors
        B, T, H, E = d_out.shape
        d_out = d_out.reshape(B, T * H, E)
        d_v = torch.bmm(share.mT, d_out)
        d_share = torch.bmm(d_out, v.mT)
        d_scores = torch.ops.aten._softmax_backward_data(d_share, share, -1, share.dtype)
        d_q, d_k = _product(d_scores, k, E**-0.5), _product(d_scores.mT, q, E**-0.5)
        return d_q.view(B, T, H, E), d_k.view(B, T, 1, E), d_v.view(B, T, 1, E), None


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Batched product times `scale`, in one pass."""
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=scale)


def _is_ours(x: Tensor) -> bool:
    return x.is_cpu and x.dtype == torch.float32 and not torch.compiler.is_compiling()
