"""Attention inside documents: rows hold several documents, and none of them sees another.

One function, `attend`, with two paths. On CUDA, where torch has it, variable-length flash attention
over the documents' boundaries; elsewhere SDPA with a block-causal mask, which costs O(T^2) memory per
row and is the plain path that the fast one is tested against.

    B = rows, T = positions in a row, H = query heads, K = key/value heads, E = width of a head
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_MASKED = -1e4
"""Added to a forbidden score: exp underflows to 0 in every dtype, and a sum with it stays finite."""


@dataclass(frozen=True)
class Documents:
    """Where the documents of a batch of rows lie; made once per batch, used by every layer."""

    positions_BT: Tensor
    """Position inside the document, from 0 (int64)."""
    mask_B1TT: Tensor | None
    """What to add to the scores, in the model's dtype; None on the variable-length path."""
    bounds: Tensor | None = None
    """Starts of all documents in the flattened batch and its end (int32); None on the SDPA path."""
    longest: int = 0


def documents(segments_BT: Tensor, dtype: torch.dtype) -> Documents:
    """The layout of rows whose positions carry the number of their document.

    Args:
        segments_BT: any integers; a document is a run of equal ones. Padding is a run like any other.
        dtype: of the activations.
    """
    B, T = segments_BT.shape
    starts_BT = torch.ones_like(segments_BT, dtype=torch.bool)
    starts_BT[:, 1:] = segments_BT[:, 1:] != segments_BT[:, :-1]
    index_T = torch.arange(T, device=segments_BT.device)
    first_BT = torch.where(starts_BT, index_T, 0).cummax(dim=1).values
    positions_BT = index_T - first_BT
    if varlen_path(segments_BT.device.type, dtype) is not None:
        begins = starts_BT.flatten().nonzero().flatten().to(torch.int32)
        bounds = torch.cat([begins, begins.new_tensor([B * T])])
        return Documents(positions_BT, None, bounds, int(positions_BT.max()) + 1)
    # Equal first positions, not equal numbers: a number may come again later in the row.
    allowed_BTT = (first_BT[:, :, None] == first_BT[:, None, :]) & (index_T[:, None] >= index_T)
    mask = torch.zeros(allowed_BTT.shape, dtype=dtype, device=segments_BT.device)
    return Documents(positions_BT, mask.masked_fill_(~allowed_BTT, _MASKED)[:, None])


def attend(q_BTHE: Tensor, k_BTKE: Tensor, v_BTKE: Tensor, layout: Documents) -> Tensor:
    """Causal attention of every position over its own document: (B, T, H, E).

    Scores are scaled by E^-0.5. K divides H; key head j serves the query heads j*H/K onwards.
    """
    if layout.bounds is not None:
        return _attend_varlen(q_BTHE, k_BTKE, v_BTKE, layout)
    groups = q_BTHE.shape[2] // k_BTKE.shape[2]
    k, v = k_BTKE.transpose(1, 2), v_BTKE.transpose(1, 2)
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    q = q_BTHE.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=layout.mask_B1TT).transpose(1, 2)


def _attend_varlen(q: Tensor, k: Tensor, v: Tensor, layout: Documents) -> Tensor:
    kernel = varlen_path(q.device.type, q.dtype)
    assert kernel is not None and layout.bounds is not None
    groups = q.shape[2] // k.shape[2]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)
    out: Tensor = kernel(
        *(x.flatten(0, 1) for x in (q, k, v)),
        layout.bounds,
        layout.bounds,
        layout.longest,
        layout.longest,
    )
    return out.view(q.shape)


@cache
def varlen_path(device: str, dtype: torch.dtype) -> Callable[..., Any] | None:
    """torch's variable-length flash attention, causal, if this device and dtype have it; else None.

    Its argument for causality has changed between torch versions (`is_causal`, then `window_size`),
    so the signature is looked at.
    """
    if device != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return None
    import inspect

    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    names = inspect.signature(varlen_attn).parameters
    causal: dict[str, Any] = {"is_causal": True} if "is_causal" in names else {"window_size": (-1, 0)}

    def kernel(*args: Any) -> Any:
        return varlen_attn(*args, **causal)

    return kernel


def path_name(device: str, dtype: torch.dtype) -> str:
    """Which path `attend` takes, for logs and records."""
    return "varlen-flash" if varlen_path(device, dtype) else "sdpa-block-causal"
