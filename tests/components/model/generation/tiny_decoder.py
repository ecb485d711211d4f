"""A small decoder whose tokens are not all alike likely, and texts for it."""

from __future__ import annotations

import torch

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.generation.choosing import own_draws
from yanmo.model.generation.writing import Text


def decoder(context: int = 64, **changed: int | bool) -> Decoder:
    """A decoder with random weights, the same every time."""
    shape = {
        "vocab_size": 90,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 80,
    }
    torch.manual_seed(3)
    found = Decoder(DecoderConfig(**{**shape, "max_position_embeddings": context, **changed}))
    for parameter in found.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return found.eval()


def text(prompt: list[int], seed: int = 0, most: int = 12, ends: tuple[int, ...] = (1,)) -> Text:
    return Text(prompt, own_draws(seed, 0), frozenset(ends), most)


def prompts(number: int, longest: int, seed: int = 0) -> list[list[int]]:
    """Prompts of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (number,), generator=generator).tolist()
    return [torch.randint(2, 90, (n,), generator=generator).tolist() for n in lengths]
