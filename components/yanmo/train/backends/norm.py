"""The norm of a gradient, by which it is clipped."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_BLOCK = 4096
"""Elements whose squares are summed before they are added to others."""


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """Return the 2-norm of all elements together: fp32, no dimensions, on their device.

    On a CPU torch adds the squares of a tensor in 8 running sums: of 20 million elements the norm is 0.15 %
    too small. Of blocks, and then of the blocks' norms, it is right to 4e-7, in the same time; a copy in
    float64 takes 6 to 23 times as long (1.5 and 20 million elements, 1 and 2 threads).

    Args:
        tensors: fp32, one at least; one that is not contiguous is copied.
    """
    norms = []
    for tensor in tensors:
        flat = tensor.detach().reshape(-1)
        whole = len(flat) // _BLOCK * _BLOCK
        if whole:
            norms.append(torch.linalg.vector_norm(flat[:whole].view(-1, _BLOCK), dim=1))
        if whole < len(flat):
            norms.append(torch.linalg.vector_norm(flat[whole:]).view(1))
    norm: Tensor = torch.linalg.vector_norm(torch.cat(norms))
    return norm
