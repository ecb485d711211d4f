"""What LoRA trains beside a frozen model, in numbers; its layers are in lora.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Lora:
    """What is trained beside the frozen matrices."""

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]
    """Names of the layers' matrices, such as q_proj."""

    @property
    def scale(self) -> float:
        return self.alpha / self.rank
