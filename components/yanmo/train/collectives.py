"""Collectives over a few numbers, through the CPU: what ranks exchange besides gradients and weights.

In a GPU's own process group each message would wait for all earlier kernels; a second group, over gloo, does
not touch the device. Every rank adds up in the order of ranks, so that sums are equal to the last digit
everywhere, however many numbers are sent together.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from yanmo.train.backends import process_group


class Collectives:
    """The ranks of one engine; every method is called by all of them together."""

    def __init__(self, world_size: int, device: torch.device) -> None:
        self._ranks = world_size
        self._group: Any = None
        if world_size > 1 and device.type != "cpu":
            self._group = dist.new_group(backend="gloo")

    def sums(self, numbers: Tensor) -> list[float]:
        """Return the sum over ranks of each of the numbers.

        Args:
            numbers: float64 (count), on the CPU; the same count on every rank.
        """
        if self._ranks == 1:
            return list(numbers.tolist())
        gathered = [torch.empty_like(numbers) for _ in range(self._ranks)]
        dist.all_gather(gathered, numbers, group=self._group)
        total = gathered[0]
        for one in gathered[1:]:
            total = total + one
        return list(total.tolist())

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is set on any rank."""
        if self._ranks == 1:
            return list(flags)
        return [count > 0 for count in self.sums(torch.tensor(flags, dtype=torch.float64))]

    def from_first_rank(self, numbers: Tensor) -> None:
        """Overwrite a tensor on the CPU with rank 0's, of the same size."""
        if self._ranks > 1:
            dist.broadcast(numbers, 0, group=self._group)

    def from_first(self, value: Any) -> Any:
        """Return rank 0's value, on every rank; of JSON's kinds."""
        return value if self._ranks == 1 else process_group.from_first(value, self._group)
