"""Cross-entropy of a linear head, of which most positions compute the logits of frequent tokens alone.

Few tokens make up most of a text: 2,048 of 8,192 are 88 % of the bundled verse. With A these tokens, a target
y of A costs

    -log p(y) = -log p(y | A) + -log p(A)

The first term needs the logits of A alone. The second is small; it is computed for a random share s of such
positions, each of which counts 1 / s times there. So loss and gradient have those of the whole cross-entropy
as their expected value (Horvitz and Thompson, 1952), whichever way the share is drawn that does not look at
the logits. Positions whose target is not in A compute all logits, once.

    N = target positions, D = model width, V = vocabulary; A comes first in it where `order_V` was applied
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from yanmo.model.flash_limits import rows_at_once
from yanmo.model.loss import SMALL, add_to_weight, nats

_CHUNK_LOGITS = 1 << 22
"""Most elements of a table of logits, but for CUDA: 16 MiB in fp32."""


class Apart(NamedTuple):
    """Which positions compute what; indices are into the N target positions."""

    order_V: Tensor
    """Token ids, the frequent ones first; ids of the head that are not in it never occur."""
    near: Tensor
    """Positions whose target is frequent, that compute the logits of frequent tokens alone."""
    whole: Tensor
    """The others, that compute all logits."""
    drawn: Tensor
    """bool; whether a target of `whole` is frequent: its position then stands for 1 / share positions."""
    frequent: int
    """Frequent tokens."""
    share: float
    """Share of the positions with frequent targets that are drawn."""


class _FrequentCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float, *parts: Any
    ) -> Tensor:
        apart = Apart(*parts)
        of_hidden, of_weight, *_ = ctx.needs_input_grad
        order = _whole_order(apart.order_V, len(weight_VD))
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        weight, target_N = weight_VD.index_select(0, order), place[targets_N]
        d_hidden = torch.empty_like(hidden_ND) if of_hidden or of_weight else None
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if of_weight else None
        total = hidden_ND.new_zeros((), dtype=torch.float32)
        times = torch.where(apart.drawn, 1 / apart.share, 1.0).float()[:, None]
        for rows, counts in zip(*(_chunks(x, len(weight)) for x in (apart.whole, times)), strict=True):
            hidden, target = hidden_ND[rows], target_N[rows, None]
            logits = (hidden @ weight.T).float()
            gradient = torch.softmax(logits, 1)
            of_frequent = gradient[:, : apart.frequent].sum(1, keepdim=True).clamp_(min=SMALL)
            total += nats(gradient.gather(1, target), logits, target)
            total -= ((counts - 1) * of_frequent.log()).sum()
            if d_hidden is not None:
                # A drawn position costs -log p(y) - (c - 1) log p(A), with c = 1 / share. Of -log p(A) the
                # gradient is p_k - p_k / p(A) for k in A, and p_k elsewhere: so all p_k get a factor.
                gradient[:, : apart.frequent] *= counts - (counts - 1) / of_frequent
                gradient[:, apart.frequent :] *= counts
                _spread(gradient, target, hidden, weight, rows, d_hidden, d_weight, scale)
        of_near = None if d_weight is None else d_weight[: apart.frequent]
        weight = weight[: apart.frequent]
        for rows in _chunks(apart.near, apart.frequent):
            hidden, target = hidden_ND[rows], target_N[rows, None]
            logits = (hidden @ weight.T).float()
            gradient = torch.softmax(logits, 1)
            total += nats(gradient.gather(1, target), logits, target)
            if d_hidden is not None:
                _spread(gradient, target, hidden, weight, rows, d_hidden, of_near, scale)
        if d_hidden is not None:
            of_head = None
            if d_weight is not None:
                of_head = torch.empty_like(weight_VD).index_copy_(0, order, d_weight.to(weight_VD.dtype))
            ctx.save_for_backward(d_hidden.mul_(scale), of_head)
        return total * scale

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        d_hidden, d_weight = ctx.saved_tensors
        of_head = None if d_weight is None else d_weight * d_loss.to(d_weight.dtype)
        return d_hidden * d_loss.to(d_hidden.dtype), of_head, *(None,) * (2 + len(Apart._fields))


def _spread(
    gradient: Tensor,
    target: Tensor,
    hidden: Tensor,
    weight: Tensor,
    rows: Tensor,
    d_hidden: Tensor,
    d_weight: Tensor | None,
    scale: float,
) -> None:
    """Add what these rows give to the gradients, from that of their logits but for the targets."""
    gradient.scatter_add_(1, target, gradient.new_full(target.shape, -1.0))
    gradient = gradient.to(hidden.dtype)
    d_hidden[rows] = gradient @ weight
    if d_weight is not None:
        add_to_weight(d_weight, gradient, hidden, scale)


def _chunks(rows: Tensor, width: int) -> tuple[Tensor, ...]:
    """Cut so that a table of logits stays in bounds; nothing where there are no rows."""
    return torch.split(rows, rows_at_once(width, rows.device.type, _CHUNK_LOGITS)) if len(rows) else ()


def _whole_order(order: Tensor, rows: int) -> Tensor:
    """With the rows of the head that no token has: embeddings of imported models have some more."""
    if len(order) == rows:
        return order
    return torch.cat([order, torch.arange(len(order), rows, device=order.device)])


def frequent_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float, apart: Apart
) -> Tensor:
    """An unbiased estimate of `linear_cross_entropy`, its gradient too (fp32 scalar).

    It costs as if each position computed about count + (V - count) (r + (1 - r) share) logits, where r is the
    share of the targets that are rare.

    Args:
        hidden_ND: final hidden states.
        weight_VD: weights of the head.
        targets_N: token ids; all of them count.
        scale: 1 / N gives the mean.
        apart: which positions compute what.
    """
    loss: Tensor = _FrequentCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, targets_N, scale, *apart
    )
    return loss
