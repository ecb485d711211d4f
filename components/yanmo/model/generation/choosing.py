"""Which token comes next: what the logits are filtered by, and the draw.

The filters keep what those of transformers keep, applied in its order: repetition penalty, temperature,
top-k, top-p, min-p. They work on probabilities and on thresholds instead of sorted copies of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from yanmo.common.bootstrap import generator_for

Draws = Callable[[int], float]
"""(how many tokens are written) -> a number in [0, 1), drawn on the CPU, whatever device computes."""
_AT_ONCE = 64
Floats = npt.NDArray[np.float64]
_COLDEST = 1e-30
"""Below this temperature logits divided by it are infinite in float32, and all is the likeliest token's."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How the next token is chosen; the names are those of transformers' GenerationConfig."""

    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_k: int = 0
    """Number of the likeliest tokens that are drawn from; 0 is all."""
    top_p: float = 1.0
    """Probability mass of the likeliest tokens that are drawn from."""
    min_p: float = 0.0
    """Least probability that is drawn, as a share of the likeliest token's."""
    repetition_penalty: float = 1.0
    """What the logits of tokens that the text holds already, prompt included, are divided by (multiplied,
    where negative)."""
    forbidden: Sequence[int] = ()
    """Ids never drawn."""

    @property
    def is_greedy(self) -> bool:
        """Return whether the likeliest token is taken, and no random number is needed."""
        return self.temperature < _COLDEST


@torch.inference_mode()
def chosen(logits: Tensor, choice: Choice, seen: Tensor | None, uniform: Sequence[float]) -> list[int]:
    """Return the next token of each row.

    Args:
        logits: (B, vocabulary), fp32; overwritten.
        seen: (B, vocabulary), bool: tokens that each text holds; needed for a repetition penalty alone.
        uniform: a random number in [0, 1) of each row; not read where the choice is greedy.
    """
    logits = _penalized(logits, choice, seen)
    if choice.is_greedy:
        return list(logits.argmax(-1).tolist())
    reached = _kept(logits, choice).cumsum(-1)
    drawn = torch.tensor(uniform, dtype=torch.float64, device=logits.device)[:, None]
    # Rounding may leave the last sum at or below the number drawn: the last token with a mass is then taken.
    wanted = torch.minimum(drawn * reached[:, -1:], reached[:, -1:].nextafter(reached.new_zeros(())))
    return list(torch.searchsorted(reached, wanted, right=True).squeeze(-1).tolist())


@torch.inference_mode()
def probabilities(logits: Tensor, choice: Choice, seen: Tensor | None = None) -> Tensor:
    """Return what each token is drawn with, (B, vocabulary), float64; arguments as for `chosen`."""
    kept = _kept(_penalized(logits, choice, seen), choice)
    return kept / kept.sum(-1, keepdim=True)


def _penalized(logits: Tensor, choice: Choice, seen: Tensor | None) -> Tensor:
    if choice.repetition_penalty != 1:
        assert seen is not None, "a penalty needs to know what each text holds"
        penalty = choice.repetition_penalty
        penalized = torch.where(logits < 0, logits * penalty, logits / penalty)
        logits = torch.where(seen, penalized, logits)
    if choice.forbidden:
        logits[:, list(choice.forbidden)] = -torch.inf
    return logits


def _kept(logits: Tensor, choice: Choice) -> Tensor:
    """Return probabilities (B, vocabulary), float64, 0 for what is filtered out; they need not sum to 1."""
    logits = logits / choice.temperature
    if 0 < choice.top_k < logits.shape[-1]:
        least = logits.topk(choice.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    mass = torch.softmax(logits, -1).double()
    if choice.top_p < 1:
        mass[mass < nucleus(mass, choice.top_p)] = 0
    if choice.min_p > 0:
        mass[mass < choice.min_p * mass.amax(-1, keepdim=True)] = 0
    return mass


def nucleus(mass: Tensor, top_p: float) -> Tensor:
    """Return the probability of the last token that belongs to the likeliest with a mass of `top_p`: (B,
    1)."""
    if not mass.is_cpu:
        falls = mass.sort(-1, descending=True).values
        at = (falls.cumsum(-1) - falls < top_p).sum(-1, keepdim=True) - 1
        return falls.gather(-1, at)
    return torch.tensor([[_least_of_nucleus(row, top_p)] for row in mass.numpy()], dtype=torch.float64)


def _least_of_nucleus(mass: Floats, top_p: float) -> float:
    """`nucleus` of one row on a CPU: the likeliest tokens are sorted, all only where those are too few.

    The whole vocabulary of the demo's model, 8,192, takes numpy about ten times as long to sort, and torch a
    hundred times.
    """
    for least in (1e-3, 1e-5, 0.0):
        falling = np.sort(mass[mass >= least])[::-1]
        reached = falling.cumsum()
        if least == 0 or (len(reached) and reached[-1] > top_p + 1e-9):
            break
    before = reached - falling  # the likeliest token has nothing before it, so one is left
    return float(falling[np.count_nonzero(before < top_p) - 1])


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
