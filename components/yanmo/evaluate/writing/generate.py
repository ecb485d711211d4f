"""Texts of one kind from one generator of random numbers, as `evaluate` draws them.

The writing itself, its filters and its speed: yanmo/model/generation. Here every token of all texts takes one
block of random numbers, so that a seed means the same texts as it always did.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from yanmo.model.generation.choosing import Choice, shared_draws
from yanmo.model.generation.writer import Writer
from yanmo.model.generation.writing import Text, write

AT_ONCE = 1024
"""Texts that are written at a time: the logits of all of them are in memory (100,000 took more than 3 GB)."""


def generate(
    writer: Writer,
    prompts: Sequence[Sequence[int]],
    *,
    eos: int,
    generator: torch.Generator,
    max_new_tokens: int = 64,
    temperature: float = 1.0,
    top_p: float = 1.0,
    forbidden: Sequence[int] = (),
) -> list[list[int]]:
    """Continue each prompt until `eos` or `max_new_tokens`, beyond the model's context too.

    Args:
        prompts: token ids, usually `[bos, genre tag]`.
        eos: ends a text; not part of the result.
        generator: source of all randomness, on the CPU.
        temperature: 0 takes the likeliest token.
        top_p: probability mass of the likeliest tokens that are drawn from.
        forbidden: ids never drawn (padding, tags, bytes).

    Returns:
        The new tokens of each text, without prompt and end.
    """
    choice = Choice(temperature=temperature, top_p=top_p, forbidden=forbidden)
    written: list[list[int]] = []
    for at in range(0, len(prompts), AT_ONCE):
        part = prompts[at : at + AT_ONCE]
        draws = shared_draws(generator, len(part))
        texts = [
            Text(prompt, draw, frozenset([eos]), max_new_tokens)
            for prompt, draw in zip(part, draws, strict=True)
        ]
        for _ in write(writer, texts, choice, at_once=len(part), slides=True):
            pass
        written += [text.new for text in texts]
    return written
