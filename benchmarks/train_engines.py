"""torchtitan and nanochat on one GPU: two contestants of train.py, with their own code.

torchtitan 0.2.2 (`pip install torchtitan==0.2.2`) has Qwen3, our architecture: its model, trained as
its trainer does on one device: fp32 weights under autocast, each block and the loss compiled, fused AdamW.
nanochat is no package: PYTHONPATH names a checkout of it. Its architecture is its own (ReLU^2, value
embeddings), so its FLOPs are counted by its own `estimate_flops`; full attention in all layers, which SDPA
computes where FlashAttention 3 is not installed. As its trainer does, the whole model is compiled.
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


def nanochat(bench: Any) -> Step:
    """nanochat's model of as many layers and as wide, with its optimizer (Muon and AdamW)."""
    from nanochat.gpt import GPT, GPTConfig

    c = bench.shape
    config = GPTConfig(
        sequence_len=bench.options.context,
        vocab_size=c.vocab_size,
        n_layer=c.num_hidden_layers,
        n_head=c.num_attention_heads,
        n_kv_head=c.num_key_value_heads,
        n_embd=c.hidden_size,
        window_pattern="L",
    )
    with torch.device("meta"):
        model = GPT(config)
    model.to_empty(device=bench.device)
    model.init_weights()
    bench.flops["nanochat"] = float(model.estimate_flops())
    optimizer = model.setup_optimizer()
    called = torch.compile(model, dynamic=False) if bench.asked.compile else model

    def step(number: int) -> None:
        ids = bench.on_device(number)
        called(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()).backward()
        optimizer.step()
        model.zero_grad(set_to_none=True)

    return step
