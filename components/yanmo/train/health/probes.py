"""Metrics of a model's activations on a few rows of the batch: signs of collapse before the loss rises.

B = rows, T = positions, D = model width, F = feed-forward width, H = query heads, K = key/value heads,
E = head width, V = vocabulary, N = positions that hold text
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor

from yanmo.model.decoder import Block, Decoder

DORMANT = 0.025
"""A unit is dormant when the mean of its |activation| is at most this share of its layer's mean: the tau of
Sokar et al. 2023 (arXiv 2302.12902), section 3."""
_ROUNDING = 1e-4
"""Singular values below this share of the states' norm are rounding errors (2^-9 of each state in bf16)."""


def active_units(activations_NF: Tensor) -> float:
    """Return the share of units that are not dormant."""
    score_F = activations_NF.float().abs().mean(0)
    if not torch.isfinite(score_F).all():
        return math.nan
    return float((score_F > DORMANT * score_F.mean()).float().mean())


def effective_rank(hidden_ND: Tensor) -> float:
    """exp of the entropy of the normalized singular values of the centred states (Roy & Vetterli 2007).

    1 if all states are equal or lie on a line, up to min(N - 1, D) if they spread evenly in all directions;
    NaN if some are not finite, as in a step that will be skipped.
    """
    states = hidden_ND.float()
    if not torch.isfinite(states).all():
        return math.nan
    try:
        values = torch.linalg.svdvals(states - states.mean(0))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # LAPACK did not converge: no reason to end a training
        return math.nan
    values = values[values > _ROUNDING * states.norm()]  # else rounding errors would give equal states a rank
    share = values / values.sum()
    return float(torch.exp(-(share * share.log()).sum()))


def attention_entropy(q_BTHE: Tensor, k_BTKE: Tensor, segments_BT: Tensor) -> float:
    """Return the mean entropy of the attention weights, as a share of that of uniform attention.

    Only positions that see at least two count. Near 0 each head looks at a single position: the collapse of
    Zhai et al. 2023 (arXiv 2303.06296).
    """
    T, groups = q_BTHE.shape[1], q_BTHE.shape[2] // k_BTKE.shape[2]
    k_BTHE = k_BTKE.repeat_interleave(groups, 2)
    scores = torch.einsum("bihe,bjhe->bhij", q_BTHE.float(), k_BTHE.float()) / math.sqrt(q_BTHE.shape[-1])
    index = torch.arange(T, device=segments_BT.device)
    seen = (segments_BT[:, :, None] == segments_BT[:, None, :]) & (index[:, None] >= index)
    weights = scores.masked_fill(~seen[:, None], -math.inf).softmax(-1)
    entropy_BHT = -(weights * weights.clamp(min=1e-30).log()).sum(-1)
    count_BT = seen.sum(-1)
    counted = (count_BT >= 2) & (segments_BT > 0)
    share = entropy_BHT / count_BT.clamp(min=2).log()[:, None]
    return float((share * counted[:, None]).sum() / (counted.sum() * share.shape[1]).clamp(min=1))


def output_entropy(logits_NV: Tensor) -> float:
    """Return the mean entropy of the predictions, as a share of that of a uniform guess."""
    log_p = logits_NV.float().log_softmax(-1)
    return float(-(log_p.exp() * log_p).sum(-1).mean() / math.log(logits_NV.shape[1]))


def _uncompiled(decoder: Decoder) -> AbstractContextManager[Any]:
    """Inside, layers run as they were written: compiled ones take no notice of hooks that are new to them.

    What no layer needs does not import torch._dynamo.
    """
    is_compiled = any(layer._compiled_call_impl is not None for layer in decoder.model.layers)
    stance: AbstractContextManager[Any] = (
        torch.compiler.set_stance("force_eager") if is_compiled else nullcontext()
    )
    return stance


@torch.no_grad()
def look_inside(decoder: Decoder, ids_BT: Tensor, segments_BT: Tensor) -> dict[str, Any]:
    """Return the metrics above, by layer (`output_entropy`: one number), from one forward pass over packed
    rows.

    Args:
        decoder: with whole weights, in evaluation mode.
        segments_BT: number of the document at each position, 0 for padding.
    """
    text = (segments_BT > 0).flatten()
    found: dict[str, Any] = {"active_units": [], "effective_rank": [], "attention_entropy": []}

    def feed_forward(module: Any, inputs: tuple[Tensor, ...]) -> None:
        found["active_units"].append(active_units(inputs[0].flatten(0, -2)[text]))

    def attention(module: Any, inputs: tuple[Any, ...]) -> None:
        q, k, _ = module.heads(inputs[0], inputs[1])
        found["attention_entropy"].append(attention_entropy(q, k, segments_BT))

    def block(module: Any, inputs: Any, output: Tensor) -> None:
        found["effective_rank"].append(effective_rank(output.flatten(0, -2)[text]))

    hooks = []
    for module in decoder.model.layers:
        layer = cast(Block, module)
        hooks.append(layer.mlp.down_proj.register_forward_pre_hook(feed_forward))
        hooks.append(layer.self_attn.register_forward_pre_hook(attention))
        hooks.append(layer.register_forward_hook(block))
    try:
        with _uncompiled(decoder):
            hidden_ND = decoder.hidden(ids_BT, segments_BT).flatten(0, -2)[text]
    finally:
        for hook in hooks:
            hook.remove()
    found["output_entropy"] = output_entropy(decoder.lm_head(hidden_ND))
    return found
