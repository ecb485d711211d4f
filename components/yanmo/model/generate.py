"""Sampling from a decoder: seeded, with temperature and nucleus, several texts at a time.

Every step reads the whole text so far (at most one context); at the length of a verse this costs less than a
key/value cache saves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from yanmo.model.decoder import Decoder


@torch.no_grad()
def generate(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    eos: int,
    generator: torch.Generator,
    max_new_tokens: int = 64,
    temperature: float = 1.0,
    top_p: float = 1.0,
    forbidden: Sequence[int] = (),
) -> list[list[int]]:
    """Continue each prompt until `eos` or `max_new_tokens`.

    Args:
        prompts: token ids, all of one length, usually `[bos, genre tag]`.
        eos: ends a text; not part of the result.
        generator: source of all randomness, on the CPU.
        temperature: 0 takes the likeliest token.
        top_p: probability mass of the likeliest tokens that are drawn from.
        forbidden: ids never drawn (padding, tags, bytes).

    Returns:
        The new tokens of each text, without prompt and end.
    """
    if len({len(p) for p in prompts}) > 1:
        raise ValueError("prompts of different lengths: give them one by one")
    device = model.lm_head.weight.device
    ids = torch.tensor([list(p) for p in prompts], device=device)
    done = torch.zeros(len(prompts), dtype=torch.bool)
    context = model.config.max_position_embeddings
    for _ in range(max_new_tokens):
        seen = ids[:, -context:]
        last = model.hidden(seen, torch.zeros_like(seen))[:, -1]  # the head reads one position, not all
        logits = model.lm_head(last).float().cpu()
        logits[:, list(forbidden)] = -torch.inf
        drawn = torch.where(done, eos, _draw(logits, temperature, top_p, generator))
        ids = torch.cat([ids, drawn[:, None].to(device)], dim=1)
        done |= drawn == eos
        if done.all():
            break
    new = ids[:, len(prompts[0]) :].tolist()
    return [text[: text.index(eos)] if eos in text else text for text in new]


def _draw(logits: torch.Tensor, temperature: float, top_p: float, generator: torch.Generator) -> torch.Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    probabilities, order = torch.softmax(logits / temperature, -1).sort(-1, descending=True)
    before = probabilities.cumsum(-1) - probabilities
    probabilities[before >= top_p] = 0  # the likeliest token has nothing before it, so one is left
    rank = torch.multinomial(probabilities, 1, generator=generator)
    return order.gather(-1, rank).squeeze(-1)
