"""Cross-entropy of a linear head without storing all logits.

The logits, (positions x vocabulary), are the largest tensor of a small language model. Here they are computed
256 rows at a time (on CUDA more: flash_limits.py), and the gradient with them in the forward pass, so that
they are never stored as a whole: 1.2 times as many tokens per CPU-second as F.cross_entropy in fp32. Losses
and sums are fp32 whatever the dtype of the weights. The loss cannot be differentiated twice.

On a GPU what lies between the products is bound by memory: a dozen kernels that read and write logits in
fp32. Compiled (--compile) it is read and written in 16 bits.

    N = target positions, R = rows at a time, D = model width, V = vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from yanmo.model.flash_limits import rows_at_once

SMALL = 1e-30
"""Below this, a probability in fp32 has lost digits."""


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float, compiled: bool
    ) -> Tensor:
        of_hidden, of_weight, *_ = ctx.needs_input_grad
        d_hidden = torch.empty_like(hidden_ND) if of_hidden or of_weight else None
        d_weight = torch.zeros_like(weight_VD, dtype=torch.float32) if of_weight else None
        total = hidden_ND.new_zeros((), dtype=torch.float32)
        at_once = rows_at_once(len(weight_VD), weight_VD.device.type, compiled=compiled)
        for start in range(0, len(targets_N), at_once):
            rows = slice(start, start + at_once)
            hidden, target = hidden_ND[rows], targets_N[rows, None]
            found, gradient = (_compiled() if compiled else _of_rows)(hidden, weight_VD, target)
            total += found
            if d_hidden is None:
                continue
            torch.mm(gradient, weight_VD, out=d_hidden[rows])
            if d_weight is not None:  # it is None where the head is frozen
                add_to_weight(d_weight, gradient, hidden, scale)
        if d_hidden is not None:
            # Scaled here and not in the (rows x V) table, which is V / D times as large.
            of_head = None if d_weight is None else d_weight.to(weight_VD.dtype)
            ctx.save_for_backward(d_hidden.mul_(scale), of_head)
        return total * scale

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, d_loss: Tensor
    ) -> tuple[Tensor, Tensor | None, None, None, None]:
        d_hidden, d_weight = ctx.saved_tensors
        of_head = None if d_weight is None else d_weight * d_loss.to(d_weight.dtype)
        return d_hidden * d_loss.to(d_hidden.dtype), of_head, None, None, None


def _of_rows(hidden_RD: Tensor, weight_VD: Tensor, target_R1: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows' summed loss in nats (fp32), and the gradient of their logits, (R, V) like
    `hidden_RD`."""
    logits = (hidden_RD @ weight_VD.T).float()
    # One fused pass instead of max, subtract, exp and sum; a row stays in the cache.
    gradient = torch.softmax(logits, 1)
    found = nats(gradient.gather(1, target_R1), logits, target_R1)
    gradient.scatter_add_(1, target_R1, gradient.new_full(target_R1.shape, -1.0))
    return found, gradient.to(hidden_RD.dtype)


def to_compile(hidden_RD: Tensor, weight_VD: Tensor, target_R1: Tensor) -> tuple[Tensor, Tensor]:
    """`_of_rows` without scattering, so that what follows the product becomes few passes over the logits."""
    logits = (hidden_RD @ weight_VD.T).float()
    normal_R1 = torch.logsumexp(logits, 1, keepdim=True)
    is_target_RV = torch.arange(logits.shape[1], device=logits.device) == target_R1
    gradient = (logits - normal_R1).exp() - is_target_RV.float()
    return (normal_R1 - logits.gather(1, target_R1)).sum(), gradient.to(hidden_RD.dtype)


@cache
def _compiled() -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    return torch.compile(to_compile)


def add_to_weight(d_weight: Tensor, gradient: Tensor, hidden: Tensor, scale: float) -> None:
    """Add the head's gradient, (V x D) in fp32, from that of some rows' logits."""
    if hidden.dtype == torch.float32:
        d_weight.addmm_(gradient.T, hidden, alpha=scale)
    else:
        d_weight.add_(gradient.T @ hidden, alpha=scale)  # without a table of it in fp32


def nats(probability: Tensor, logits: Tensor, target: Tensor) -> Tensor:
    """Sum of -log of the targets' probabilities, exact even where one is too small for fp32.

    On a GPU, finding out whether one is too small would wait for all earlier kernels, in each chunk: there
    the logits are always used.
    """
    if not probability.is_cpu or probability.min() < SMALL:
        return (torch.logsumexp(logits, 1, keepdim=True) - logits.gather(1, target)).sum()
    return -probability.log().sum()


def linear_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float, compiled: bool = False
) -> Tensor:
    """Return the sum of the targets' negative log-probabilities in nats, times `scale` (fp32 scalar).

    Args:
        hidden_ND: final hidden states.
        weight_VD: weights of the head.
        targets_N: token ids; all of them count.
        scale: 1 / N gives the mean; 1 / (targets of the global batch) gives this rank's share of the mean.
        compiled: whether what lies between the products is compiled.
    """
    loss: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, targets_N, scale, compiled
    )
    return loss
