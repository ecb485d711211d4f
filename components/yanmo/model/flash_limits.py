"""What variable-length flash attention requires of a GPU and of a model, and how many rows of logits the loss
holds; without torch, so that the memory estimate can ask too.

From torch's aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and FlashAttention 2: an Ampere GPU or a
later one, 16 bits, a head width that is a multiple of 8, up to 256. The backward pass for heads wider than
192 needs more shared memory than GPUs of compute capability 8.6 to 8.9 and 12.x have.

Logits on a CPU are few at a time: they stay in its cache. On CUDA 256 rows of 8,192 take less time than it
takes to launch the kernels that make loss and gradient of them: a step of `small` on an H200 spent 4.3 ms of
the host's time on 8 times 4,096 rows (benchmarks/NOTES.md).
"""

from __future__ import annotations

Capability = tuple[int, int]
"""Compute capability of a CUDA GPU: A100 is (8, 0), H100 and H200 are (9, 0)."""

_LEAST: Capability = (8, 0)
_TENSOR_CORES: Capability = (7, 0)
_WIDEST, _WIDEST_OF_SMALL = 256, 192
"""Largest head width: in general, and on GPUs with less shared memory."""


def half_precision(capability: Capability | None) -> str:
    """Return the precision of 16 bits in which a GPU's tensor cores multiply; fp32 where it has none.

    bf16 from Ampere on. Before that (T4, RTX 20) torch emulates bf16, and fp16 is what the card is for.

    Args:
        capability: None if unknown, which counts as a later one.
    """
    if capability is None or capability >= _LEAST:
        return "bf16"
    return "fp16" if capability >= _TENSOR_CORES else "fp32"


def prefers_cudnn(precision: str, head_width: int, capability: Capability | None) -> bool:
    """Return whether SDPA has a faster kernel than FlashAttention 2 for rows of one document each: cuDNN's.

    A step of `medium` took 61.9 ms with it on an H200, 67.7 without (benchmarks/results/gpu.json). It takes
    head widths of 8, 16 ... 128, and makes a plan for each shape of a batch, so it is for training alone,
    whose batches are all alike.
    """
    is_made_for_it = capability is not None and capability[0] in (9, 10)
    return is_made_for_it and precision in ("bf16", "fp16") and head_width % 8 == 0 and head_width <= 128


def misfit(device: str, precision: str, head_width: int, capability: Capability | None) -> str:
    """Return why flash attention cannot run here, in words; "" if it can.

    Args:
        device: cpu, cuda or mps.
        precision: bf16, fp16 or fp32.
        head_width: of the model.
        capability: lowest compute capability of the GPUs; None if unknown, which counts as suitable.
    """
    if device != "cuda":
        return f"it needs a CUDA device, and this is {device}"
    if precision not in ("bf16", "fp16"):
        return f"it needs 16 bits, and the precision is {precision} (give --precision bf16)"
    if head_width % 8 or not 8 <= head_width <= _WIDEST:
        return f"it needs a head width of 8, 16 ... {_WIDEST}, and the model's (--head-width) is {head_width}"
    if capability is None:
        return ""
    shown = ".".join(map(str, capability))
    if capability < _LEAST:
        return f"it needs a GPU of compute capability 8.0 or more (Ampere), and this one has {shown}"
    is_small = capability in ((8, 6), (8, 7), (8, 9)) or capability[0] >= 12
    if is_small and head_width > _WIDEST_OF_SMALL:
        return (
            f"on compute capability {shown} it needs a head width of at most {_WIDEST_OF_SMALL}, and the "
            f"model's (--head-width) is {head_width}"
        )
    return ""


_FEWEST_ROWS = 256
_LOGITS = 1 << 25
"""128 MiB in fp32, of which the loss holds up to three: 4,096 rows of 8,192."""
_COMPILED = 1 << 27
"""256 MiB in 16 bits, of which a compiled loss holds two, the logits and their gradient."""


def rows_at_once(width: int, device: str, elsewhere: int = 0, compiled: bool = False) -> int:
    """Rows of `width` logits.

    Args:
        device: cpu, cuda or mps.
        elsewhere: most logits on another device than CUDA; 256 rows are always held.
        compiled: whether the loss is compiled, as it is on CUDA alone.
    """
    most = (_COMPILED if compiled else _LOGITS) if device == "cuda" else elsewhere
    return max(_FEWEST_ROWS, most // width)
