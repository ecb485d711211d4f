"""Collectives over a few numbers, through the CPU: all that ranks exchange besides gradients.

A GPU's own group would make each message wait for all kernels before it; a second group over gloo does not
touch the device. Sums are made in the order of ranks on every rank, so that they are equal to the last digit
everywhere, however many numbers are sent together.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Collectives:
    """The ranks of one engine; every method is called by all of them together."""

    def __init__(self, world_size: int, device: torch.device) -> None:
        self._ranks = world_size
        self._group: Any = None
        if world_size > 1 and device.type != "cpu":
            self._group = dist.new_group(backend="gloo")

    def sums(self, numbers: Tensor) -> list[float]:
        """Each of the numbers summed over ranks.

        Args:
            numbers: float64 (count) on the CPU; the same count on every rank.
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
        """Which of the flags are set on any rank."""
        if self._ranks == 1:
            return list(flags)
        return [count > 0 for count in self.sums(torch.tensor(flags, dtype=torch.float64))]

    def from_first(self, value: Any) -> Any:
        """Rank 0's value."""
        if self._ranks == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, group=self._group)
        return box[0]
