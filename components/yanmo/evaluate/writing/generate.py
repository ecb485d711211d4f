"""Sampling from a decoder: seeded, with temperature and nucleus, many texts at a time.

Keys and values of what was read are kept, so that a step reads one token of each text. A text that outgrows
the model reads the latter half of the context again and goes on, as in scoring (model/scoring.py).
256 texts of 80 tokens take 12 CPU-seconds; reading everything again at each step took 72 (4 M parameters).

The model may be on a GPU; then the draw is made there too, from random numbers of the CPU's generator, one
of each text and token whatever the device. So a seed means the same text everywhere, until a draw falls
between two tokens closer than the devices' last digits: from there on the text goes its own way.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from yanmo.model.decoder import Attention, Block, Decoder, rotary_tables, rotate

AT_ONCE = 1024
"""Texts that are written at a time: the logits of all of them are in memory (100,000 took more than 3 GB)."""
_COLDEST = 1e-30
"""Below this temperature logits divided by it are infinite in float32, and all is the likeliest token's."""


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
    if len(prompts) > AT_ONCE:
        some = functools.partial(
            generate,
            model,
            eos=eos,
            generator=generator,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            forbidden=forbidden,
        )
        parts = [prompts[at : at + AT_ONCE] for at in range(0, len(prompts), AT_ONCE)]
        return [text for part in parts for text in some(part)]
    reader = _Reader(model, len(prompts))
    ids = torch.tensor([list(p) for p in prompts], device=model.lm_head.weight.device)
    logits = reader.read(ids)
    done = torch.zeros(len(prompts), dtype=torch.bool)
    for step in range(max_new_tokens):
        logits[:, list(forbidden)] = -torch.inf
        drawn = torch.where(done, eos, _draw(logits, temperature, top_p, generator).cpu())
        ids = torch.cat([ids, drawn[:, None].to(ids.device)], dim=1)
        done |= drawn == eos
        if done.all() or step == max_new_tokens - 1:
            break
        logits = reader.read(ids)
    new = ids[:, len(prompts[0]) :].tolist()
    return [text[: text.index(eos)] if eos in text else text for text in new]


class _Reader:
    """Reads growing texts of one length, each token once while they fit into the context.

    B = texts, N = tokens read now, T = tokens read in all, K = key/value heads, E = head width
    """

    def __init__(self, model: Decoder, texts: int) -> None:
        self._model, config = model, model.config
        self._context = config.max_position_embeddings
        weight = model.lm_head.weight
        shape = (config.num_hidden_layers, 2, texts, self._context)
        self._kept = weight.new_empty(*shape, config.num_key_value_heads, config.head_dim)
        self._begin = self._end = 0
        """The kept tokens are those from `_begin` to `_end` of each text."""

    def read(self, ids: Tensor) -> Tensor:
        """Logits (B, vocabulary) after the last token of `ids`, in fp32."""
        if ids.shape[1] - self._begin > self._context:
            self._begin = self._end = ids.shape[1] - max(1, self._context // 2)
        new, before = ids[:, self._end :], self._end - self._begin
        self._end = ids.shape[1]
        x_BND = self._model.model.embed_tokens(new)
        at = torch.arange(before, before + new.shape[1], device=ids.device)
        rotary = rotary_tables(at[None], self._model.config, x_BND.dtype)
        mask_NT = torch.arange(before + len(at), device=ids.device) <= at[:, None]
        for module, kept in zip(self._model.model.layers, self._kept, strict=True):
            layer = cast(Block, module)
            x_BND = x_BND + _attended(layer.self_attn, layer.input_layernorm(x_BND), rotary, kept, mask_NT)
            x_BND = x_BND + layer.mlp(layer.post_attention_layernorm(x_BND))
        last = self._model.model.norm(x_BND[:, -1])  # the head reads one position, not all
        logits: Tensor = self._model.lm_head(last).float()
        return logits


def _attended(
    layer: Attention, x_BND: Tensor, rotary: tuple[Tensor, Tensor], kept: Tensor, mask_NT: Tensor
) -> Tensor:
    """What attention adds at the new positions; their keys and values are added to `kept`."""
    shape, (new, total) = (*x_BND.shape[:2], -1, layer.head_dim), mask_NT.shape
    q_BNHE = rotate(layer.q_norm(layer.q_proj(x_BND).view(shape)), rotary)
    kept[0, :, total - new : total] = rotate(layer.k_norm(layer.k_proj(x_BND).view(shape)), rotary)
    kept[1, :, total - new : total] = layer.v_proj(x_BND).view(shape)
    k, v = kept[:, :, :total].transpose(2, 3)
    groups = q_BNHE.shape[2] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    mixed = F.scaled_dot_product_attention(q_BNHE.transpose(1, 2), k, v, attn_mask=mask_NT)
    out: Tensor = layer.o_proj(mixed.transpose(1, 2).flatten(2))
    return out


def _draw(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> Tensor:
    """One token of each row, by one random number of each."""
    if temperature < _COLDEST:
        return logits.argmax(-1)
    probabilities = torch.softmax(logits / temperature, -1).double()
    if top_p < 1:
        probabilities[probabilities < _nucleus(probabilities, top_p)] = 0
    reached = probabilities.cumsum(-1)
    drawn = torch.rand(len(logits), 1, generator=generator, dtype=torch.float64)
    wanted = drawn.to(reached.device) * reached[:, -1:]
    return torch.searchsorted(reached, wanted, right=True).squeeze(-1)


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """The probability of the last token that belongs to the likeliest with a mass of `top_p`: (B, 1).

    On a CPU numpy sorts 64 rows of 8,192 in 3 ms, torch in 45 (one thread).
    """
    if not probabilities.is_cpu:
        falls = probabilities.sort(-1, descending=True).values
        at = (falls.cumsum(-1) - falls < top_p).sum(-1, keepdim=True) - 1
        return falls.gather(-1, at)
    falling = np.sort(probabilities.numpy(), axis=-1)[:, ::-1]
    before = falling.cumsum(-1) - falling  # the likeliest token has nothing before it, so one is left
    last = (before < top_p).sum(-1, keepdims=True) - 1
    return torch.from_numpy(np.take_along_axis(falling, last, -1))
