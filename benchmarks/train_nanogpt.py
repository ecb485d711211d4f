"""nanoGPT-like code, one contestant of train.py: what people write before they optimize."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class NanoGPT(nn.Module):
    """Written after nanoGPT's model.py: learned positions, LayerNorm, fused qkv, GELU, tied head."""

    def __init__(self, vocabulary: int, context: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width, bias=False),
                    "qkv": nn.Linear(width, 3 * width, bias=False),
                    "out": nn.Linear(width, width, bias=False),
                    "norm2": nn.LayerNorm(width, bias=False),
                    "up": nn.Linear(width, 4 * width, bias=False),
                    "down": nn.Linear(4 * width, width, bias=False),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            q, k, v = block["qkv"](block["norm1"](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + block["out"](mixed)
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x))))
        return self.head(self.norm(x))
