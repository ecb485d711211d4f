"""torchtitan on one GPU: a contestant of train.py, with its own code.

torchtitan 0.2.2 (`pip install torchtitan==0.2.2`) has Qwen3, our architecture: its model, trained as
its trainer does on one device: fp32 weights under autocast, each block and the loss compiled, fused AdamW.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Step = Callable[[int], Any]


def torchtitan(bench: Any) -> Step:
    """Qwen3 of the same shape in torchtitan.

    Args:
        bench: the `Bench` of train.py.
    """
    from torchtitan.components.loss import cross_entropy_loss
    from torchtitan.models.qwen3.model.args import Qwen3ModelArgs
    from torchtitan.models.qwen3.model.model import Qwen3Model

    c = bench.shape
    model = Qwen3Model(
        Qwen3ModelArgs(
            dim=c.hidden_size,
            n_layers=c.num_hidden_layers,
            n_heads=c.num_attention_heads,
            n_kv_heads=c.num_key_value_heads,
            vocab_size=c.vocab_size,
            head_dim=c.head_dim,
            hidden_dim=c.intermediate_size,
            max_seq_len=bench.options.context,
        )
    ).to(bench.device)
    with torch.no_grad():
        model.init_weights()
    loss_of = cross_entropy_loss
    if bench.asked.compile:
        for layer in model.layers.values():
            layer.compile(fullgraph=True)
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=bench.rate, betas=(0.9, 0.95), fused=True)

    def step(number: int) -> None:
        ids = bench.on_device(number)
        with torch.autocast(bench.device, dtype=torch.bfloat16):
            loss = loss_of(model(ids[:, :-1]), ids[:, 1:].contiguous()) / bench.tokens
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()

    return step
