"""How many rows of logits the loss holds at a time; without torch, so that the memory estimate can ask too.

On a CPU few: they stay in its cache. On CUDA 256 rows of 8,192 take less time than it takes to launch the
dozen kernels that make loss and gradient of them (by their arithmetic on an H100; not measured).
"""

from __future__ import annotations

_LEAST = 256
_LOGITS = 1 << 25
"""128 MiB in fp32, of which the loss holds up to three: 4,096 rows of 8,192."""


def rows_at_once(width: int, device: str, elsewhere: int = 0) -> int:
    """Rows of `width` logits.

    Args:
        device: cpu, cuda or mps.
        elsewhere: most logits on another device than CUDA; 256 rows are always held.
    """
    return max(_LEAST, (_LOGITS if device == "cuda" else elsewhere) // width)
