"""Where the random numbers of a text come from: on the CPU, whatever device computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from yanmo.common.bootstrap import generator_for

Draws = Callable[[int], float]
"""(how many tokens are written) -> a number in [0, 1)."""
_AT_ONCE = 64


def own_draws(seed: int, sample: int) -> Draws:
    """Random numbers of one text alone: they do not depend on what else is written beside it.

    Args:
        sample: which of several texts of one prompt.
    """
    generator, numbers = generator_for(seed, f"sample {sample}"), np.empty(0)

    def draw(step: int) -> float:
        nonlocal numbers
        while step >= len(numbers):
            numbers = np.append(numbers, generator.random(_AT_ONCE))
        return float(numbers[step])

    return draw


def shared_draws(generator: torch.Generator, number: int) -> list[Draws]:
    """Random numbers of texts that share a generator: for each token, one of every text in their order."""
    blocks: list[list[float]] = []

    def draw(step: int, row: int) -> float:
        while step >= len(blocks):
            blocks.append(torch.rand(number, generator=generator, dtype=torch.float64).tolist())
        return blocks[step][row]

    return [lambda step, row=row: draw(step, row) for row in range(number)]  # type: ignore[misc]
