"""What variable-length flash attention asks of a GPU and of a model; without torch, so that the memory
estimate can ask too.

From torch's aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and FlashAttention 2: an Ampere GPU or a
later one, 16 bits, heads of a multiple of 8 up to 256. Backward for heads wider than 192 wants more shared
memory than compute capabilities 8.6, 8.9 and 12.x have.
"""

from __future__ import annotations

Capability = tuple[int, int]
"""Compute capability of a CUDA GPU: A100 is (8, 0), H100 and H200 are (9, 0)."""

_LEAST: Capability = (8, 0)
_WIDEST, _WIDEST_OF_SMALL = 256, 192


def misfit(device: str, precision: str, head_width: int, capability: Capability | None) -> str:
    """Why flash attention cannot run here, in words; "" if it can.

    Args:
        precision: bf16, fp16 or fp32.
        capability: lowest compute capability of the GPUs; None if unknown, which counts as suitable.
    """
    if device != "cuda":
        return f"it needs a CUDA device, and this is {device}"
    if precision not in ("bf16", "fp16"):
        return f"it needs 16 bits, and the precision is {precision} (give --precision bf16)"
    if head_width % 8 or not 8 <= head_width <= _WIDEST:
        return f"it needs heads of a multiple of 8 up to {_WIDEST}, and --head-width is {head_width}"
    if capability is None:
        return ""
    shown = ".".join(map(str, capability))
    if capability < _LEAST:
        return f"it needs a GPU of compute capability 8.0 or more (Ampere), and this one has {shown}"
    is_small = capability in ((8, 6), (8, 7), (8, 9)) or capability[0] >= 12
    if is_small and head_width > _WIDEST_OF_SMALL:
        return (
            f"on compute capability {shown} it needs heads of up to {_WIDEST_OF_SMALL}, and --head-width is "
            f"{head_width}"
        )
    return ""
