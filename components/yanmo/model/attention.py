"""Attention within documents: a row may hold several documents, which do not see each other.

One function, `attend`, with three paths, chosen once (`choose_path`):

    varlen  variable-length flash attention, told where documents begin: CUDA in 16 bits, FlashAttention 3
            where it is installed; its other requirements are in flash_limits.py
    flash   SDPA, causal, without a mask: only where each row holds one document (and padding after it); on
            Hopper and Blackwell cuDNN's kernel
    masked  SDPA with a block-causal mask: works everywhere; the path that the others are tested against;
            O(T^2) memory per row; short rows with one key/value head on a CPU by cpu_kernels.py

    B = rows, T = positions in a row, H = query heads, K = key/value heads, E = width of a head
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from yanmo.common.errors import EnvironmentFault
from yanmo.model.cpu_kernels import one_head_attention, suits_one_head
from yanmo.model.flash_limits import Capability, misfit, prefers_cudnn

log = logging.getLogger(__name__)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What `--precision` is in torch."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MASKED = -1e4
"""Added to a forbidden score: exp underflows to 0 in every dtype, and a sum with it stays finite."""


@dataclass(frozen=True)
class Documents:
    """Where the documents in a batch of rows lie; made once per batch, used by every layer."""

    positions: Tensor
    """Position inside the document, from 0 (int64)."""
    mask_B1TT: Tensor | None = None
    """What to add to the scores, in the model's dtype; only on the masked path."""
    bounds: Tensor | None = None
    """Where each document begins in the flattened batch (int32), then the batch's length, repeated up to a
    power of two, so that compiled code sees few shapes; only on the varlen path."""
    shares: bool = False
    """Whether query heads share keys and values in SDPA, as flash kernels let them; else they are copied."""
    varlen: Callable[..., Any] | None = None
    """What computes that path: compiled layers would look it up at each call, and torch warn of it."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return `attend` of this layout."""
        return attend(q, k, v, self)


def document_bounds(segments_BT: NDArray[Any]) -> NDArray[np.int32]:
    """`Documents.bounds` of rows on the host: made from rows on a device, they would wait for the device.

    Args:
        segments_BT: as for `documents`.
    """
    starts_BT = np.ones(segments_BT.shape, bool)
    starts_BT[:, 1:] = segments_BT[:, 1:] != segments_BT[:, :-1]
    begins = np.flatnonzero(starts_BT)
    bounds = np.full(1 << len(begins).bit_length(), segments_BT.size, np.int32)
    bounds[: len(begins)] = begins
    return bounds


def documents(
    segments_BT: Tensor,
    dtype: torch.dtype,
    path: str = "auto",
    bounds: Tensor | None = None,
    head_width: int = 64,
) -> Documents:
    """Return where the documents in packed rows lie.

    Args:
        segments_BT: a number for each position, any integers: a run of equal ones is a document. Padding is
            a run like any other.
        dtype: type of the activations.
        path: varlen, flash (each row must hold one document) or masked; auto takes the faster one of varlen
            and masked that works here.
        bounds: what `document_bounds` returned for these rows, if they were on the host; used on the varlen
            path only.
        head_width: head width of the model.
    """
    B, T = segments_BT.shape
    if path == "auto":
        path = best_path(segments_BT.device.type, dtype, head_width, lowest_capability())
    starts_BT = torch.ones_like(segments_BT, dtype=torch.bool)
    starts_BT[:, 1:] = segments_BT[:, 1:] != segments_BT[:, :-1]
    index_T = torch.arange(T, device=segments_BT.device)
    first_BT = torch.where(starts_BT, index_T, 0).cummax(dim=1).values
    positions = index_T - first_BT
    if path == "flash":
        unfit = misfit(segments_BT.device.type, _NAMES.get(dtype, ""), head_width, lowest_capability())
        return Documents(positions, shares=not unfit)
    if path == "varlen":
        if bounds is None:
            begins = starts_BT.flatten().nonzero().flatten().to(torch.int32)
            missing = (1 << len(begins).bit_length()) - len(begins)
            bounds = torch.cat([begins, begins.new_full((missing,), B * T)])
        kernel = varlen_kernel(segments_BT.device.type, dtype)
        return Documents(positions, bounds=bounds, varlen=kernel)
    # Equal first positions, not equal numbers: a number may come again later in the row.
    allowed_BTT = (first_BT[:, :, None] == first_BT[:, None, :]) & (index_T[:, None] >= index_T)
    mask = torch.zeros(allowed_BTT.shape, dtype=dtype, device=segments_BT.device)
    return Documents(positions, mask.masked_fill_(~allowed_BTT, _MASKED)[:, None])


def whole_rows(ids_BT: Tensor, dtype: torch.dtype, path: str, head_width: int) -> tuple[str, Tensor | None]:
    """Path and bounds to score rows on CUDA of one document each: no mask, and nothing to look up there.

    SDPA is taken only where varlen cannot be: on Hopper it prefers cuDNN, which makes a plan for each shape
    of a batch, and these have many.

    Args:
        path, head_width: as for `documents`.
    """
    if path in ("auto", "flash"):
        path = best_path("cuda", dtype, head_width, lowest_capability())
    if path != "varlen":
        return "flash", None
    B, T = ids_BT.shape
    return path, torch.arange(0, B * T + 1, T, dtype=torch.int32, device=ids_BT.device)


def attend(q_BTHE: Tensor, k_BTKE: Tensor, v_BTKE: Tensor, layout: Documents) -> Tensor:
    """Causal attention of every position over its own document: (B, T, H, E).

    Scores are scaled by E^-0.5. K divides H; key head j serves the query heads j*H/K onwards.
    """
    if layout.bounds is not None:
        return _attend_varlen(q_BTHE, k_BTKE, v_BTKE, layout)
    if layout.mask_B1TT is not None and suits_one_head(q_BTHE, k_BTKE):
        return one_head_attention(q_BTHE, k_BTKE, v_BTKE, layout.mask_B1TT)
    groups = q_BTHE.shape[2] // k_BTKE.shape[2]
    q, k, v, mask = q_BTHE.transpose(1, 2), k_BTKE.transpose(1, 2), v_BTKE.transpose(1, 2), layout.mask_B1TT
    shares = groups > 1 and layout.shares
    if groups > 1 and not shares:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=shares)
    return found.transpose(1, 2)


def _attend_varlen(q: Tensor, k: Tensor, v: Tensor, layout: Documents) -> Tensor:
    assert layout.varlen is not None
    longest = q.shape[1]  # a bound, not the longest itself: that would wait for the device
    out: Tensor = layout.varlen(
        *(x.flatten(0, 1) for x in (q, k, v)), layout.bounds, layout.bounds, longest, longest
    )
    return out.view(q.shape)


@cache
def varlen_kernel(device: str, dtype: torch.dtype) -> Callable[..., Any] | None:
    """Return torch's variable-length flash attention, causal; None off CUDA and in other than 16 bits.

    `misfit` says whether GPU and model are suitable.
    """
    if device != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return None
    from torch.nn.attention.varlen import varlen_attn

    return partial(varlen_attn, window_size=(-1, 0), enable_gqa=True)


@cache
def lowest_capability() -> Capability | None:
    """Lowest compute capability of the visible GPUs, so that all ranks choose alike; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    return min(torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count()))


def varlen_problem(device: str, dtype: torch.dtype, head_width: int, capability: Capability | None) -> str:
    """Return why the varlen path cannot run here, in words; "" if it can."""
    return misfit(device, _NAMES.get(dtype, str(dtype)), head_width, capability)


def best_path(device: str, dtype: torch.dtype, head_width: int, capability: Capability | None) -> str:
    """Return the faster of the two paths that keep documents apart."""
    return "masked" if varlen_problem(device, dtype, head_width, capability) else "varlen"


def choose_path(
    asked: str,
    device: str,
    dtype: torch.dtype,
    one_document_rows: bool,
    head_width: int,
    capability: Capability | None,
) -> str:
    """Return the attention path of a training: varlen, flash or masked; the log says why a GPU does not get
    varlen.

    Args:
        asked: varlen, flash, masked or auto.
        one_document_rows: whether no row holds two documents.
        capability: compute capability of the GPU; None where there is no GPU.

    Raises:
        EnvironmentFault: the path asked for is not available here.
    """
    problem = varlen_problem(device, dtype, head_width, capability)
    if asked == "varlen" and problem:
        raise EnvironmentFault(
            f"--attention varlen: {problem}; give --attention {'flash' if one_document_rows else 'masked'}"
        )
    if asked != "auto":
        return asked
    has_cudnn = device == "cuda" and prefers_cudnn(_NAMES.get(dtype, ""), head_width, capability)
    if has_cudnn and one_document_rows:
        return "flash"
    if not problem:
        return "varlen"
    path = "flash" if one_document_rows else "masked"
    if device == "cuda":
        log.info("attention=%s, not varlen: %s", path_name(path), problem)
    return path


def activate_best_flash() -> str:
    """Make torch's kernels use FlashAttention 3 where it is installed; returns the name of what is used.

    Only a missing or unsuitable package is ignored; other errors of the package are raised.
    """
    from torch.nn.attention import activate_flash_attention_impl, list_flash_attention_impls

    if torch.cuda.get_device_capability()[0] == 9 and "FA3" in list_flash_attention_impls():
        try:
            activate_flash_attention_impl("FA3")
            return "FA3"
        except (ImportError, RuntimeError) as error:
            log.info("FlashAttention 3 is not usable (%s); using FlashAttention 2", error)
    return "FA2"


def path_name(path: str, kernel: str = "") -> str:
    """Return what a path is called in logs and metrics."""
    names = {"varlen": "varlen-flash", "flash": "sdpa-flash", "masked": "sdpa-block-causal"}
    return names[path] + (f"-{kernel.lower()}" if kernel else "")
