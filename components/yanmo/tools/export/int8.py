"""Weights of the layers as 8-bit integers, in the layout of compressed-tensors.

Each row of a matrix has a scale of its own, and what a layer reads is rounded to 8 bits too, with a scale for
each token that is found while it is computed (W8A8, "int-quantized"): what vLLM computes with the integer
units of a CPU or a GPU, and what transformers loads with the package compressed-tensors. Embedding, head and
norms stay as they are, as in the recipes of vLLM's documentation: of a small model they are most of it.

GGUF's Q8_0 is what llama.cpp makes of the whole folder; bitsandbytes quantizes while it loads and so needs
no folder of its own.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yanmo.model.decoder import Decoder

_MOST = 127
_MOST_READ = 127.5
"""What a layer reads is divided by, as compressed-tensors 0.20 has it; vLLM's kernels take 127."""
_KEPT = ("lm_head",)


def is_of_a_layer(name: str, tensor_dims: int) -> bool:
    """Whether a tensor is the matrix of a layer, which is what becomes 8-bit integers."""
    return tensor_dims == 2 and ".layers." in name and name.endswith("_proj.weight")


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest 8-bit integers, and the scale of each row, (rows, 1) in fp32: weight = integers x scale."""
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / _MOST
    return (weight.float() / scale).round().clamp(-_MOST, _MOST).to(torch.int8), scale


def quantization_config() -> dict[str, Any]:
    """What config.json says of it."""
    common = {"num_bits": 8, "type": "int", "symmetric": True, "group_size": None, "block_structure": None}
    weights = {**common, "strategy": "channel", "dynamic": False, "observer": "minmax"}
    activations = {**common, "strategy": "token", "dynamic": True, "observer": None}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "global_compression_ratio": None,
        "kv_cache_scheme": None,
        "ignore": list(_KEPT),
        "config_groups": {"group_0": {**group, "output_activations": None}},
    }


class _Rounded(nn.Module):
    """A linear layer that computes what the 8-bit integers compute."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        integers, scale = quantized(layer.weight.detach())
        self.weight = nn.Parameter(integers.float() * scale.to(dtype).float(), requires_grad=False)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        step = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12) / _MOST_READ
        return F.linear((x / step).round().clamp(-_MOST - 1, _MOST) * step, self.weight, self.bias)


def round_layers(model: Decoder, dtype: torch.dtype) -> Decoder:
    """Let a model give the results of its 8-bit folder; it still computes in fp32, so not faster.

    Args:
        model: its layers are replaced, one at a time, as there may be no room for it twice.
        dtype: of the scales.
    """
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            assert isinstance(part, nn.Module)
            for name, child in list(part.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(part, name, _Rounded(child, dtype))
    return model.eval()
