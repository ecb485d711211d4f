"""How many rows of logits the loss holds at a time; without torch, so that the memory estimate can ask too.

On a CPU few: they stay in its cache. On CUDA 256 rows of 8,192 take less time than it takes to launch the
kernels that make loss and gradient of them: a step of `small` on an H200 spent 4.3 ms of the host's time on
8 times 4,096 rows (docs/reference/measurements.md).
"""

from __future__ import annotations

_LEAST = 256
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
    return max(_LEAST, most // width)
