"""LoRA (Hu et al., 2021): a trained product of two narrow matrices beside each of some frozen ones.

Our own and not peft's: its layers are these few lines, importing it takes transformers and accelerate into
every rank, and its names (`q_proj.base_layer.weight`) would not be those of the decoder's files. Adapters are
written in peft's layout (`write_adapter`), and a test compares them with peft's sums.

    y = W x + b + (alpha / rank) B A dropout(x);  A is drawn, B begins as zeros, W and b are frozen
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yanmo.model.decoder import Decoder, DecoderConfig, Lora
from yanmo.model.weights_check import read_headers
from yanmo.model.weights_file import read_tensor, write_one_by_one, write_tensors

A, B = ".lora_A.weight", ".lora_B.weight"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_ABOVE = "base_model.model."
"""What peft puts before the names of the model's own parameters."""


class AdaptedLinear(nn.Linear):
    """A frozen linear layer with a product of two narrow ones beside it."""

    def __init__(self, frozen: nn.Linear, lora: Lora, generator: torch.Generator) -> None:
        super().__init__(frozen.in_features, frozen.out_features, frozen.bias is not None, device="meta")
        self.weight, self.bias = frozen.weight, frozen.bias
        self.lora_A = nn.Linear(self.in_features, lora.rank, bias=False)
        self.lora_B = nn.Linear(lora.rank, self.out_features, bias=False)
        self._lora = lora
        bound = 1 / math.sqrt(self.in_features)  # peft's first weights: kaiming_uniform_ with a = sqrt(5)
        drawn = torch.rand(self.lora_A.weight.shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            self.lora_A.weight.copy_((2 * drawn - 1) * bound)
            self.lora_B.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        beside = F.dropout(x, self._lora.dropout, self.training) if self._lora.dropout else x
        added: Tensor = self.lora_B(self.lora_A(beside))
        return F.linear(x, self.weight, self.bias) + added * self._lora.scale


def adapt(decoder: Decoder, lora: Lora, seed: int) -> None:
    """Freeze a decoder, and put what is trained beside its matrices; its outputs stay what they are."""
    generator = torch.Generator().manual_seed(seed)
    decoder.requires_grad_(False)
    decoder.lora = lora
    for parent, name, frozen in list(_targets(decoder, lora)):
        setattr(parent, name, AdaptedLinear(frozen, lora, generator))


def _targets(decoder: Decoder, lora: Lora) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    for layer in decoder.model.layers:
        for parent in (layer.self_attn, layer.mlp):
            assert isinstance(parent, nn.Module)
            for name, child in parent.named_children():
                if name in lora.targets:
                    assert isinstance(child, nn.Linear)
                    yield parent, name, child


@torch.no_grad()
def merged(name: str, weight: Tensor, adapter: Mapping[str, Tensor], scale: float) -> Tensor:
    """Return a weight in fp32 with what an adapter adds to it, if anything.

    Args:
        name: of the weight in a decoder that is not adapted.
        adapter: by the names of an adapted decoder's parameters.
    """
    above = name.removesuffix(".weight")
    if above + A not in adapter:
        return weight.float()
    return torch.addmm(weight.float(), adapter[above + B].float(), adapter[above + A].float(), alpha=scale)


def merge_file(
    folder: Path, config: DecoderConfig, into: Path, adapter: Mapping[str, Tensor], scale: float
) -> None:
    """Write the weights of the model in a folder with an adapter added to them, in fp32, to a file.

    Memory holds one of them at a time.
    """
    stored = read_headers(folder)
    if config.tie_word_embeddings:
        stored.pop("lm_head.weight", None)
    shapes = {name: one.shape for name, one in stored.items()}
    write_one_by_one(shapes, into, lambda name: merged(name, read_tensor(stored[name]), adapter, scale))


def write_adapter(
    folder: Path, weights: Mapping[str, Tensor], lora: Lora, base_name: str, base_digest: str
) -> list[str]:
    """Write an adapter as peft reads it; returns the names of its files.

    What it was trained beside is named by its content digest (`revision`, where peft says which version of
    the base model is meant), so that whoever uses it can tell which one.

    Args:
        weights: by the names of an adapted decoder's parameters.
        base_name: how a person calls the model that it was trained beside.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {_ABOVE + name: value.float().contiguous() for name, value in weights.items()}
    write_tensors(state, folder / WEIGHTS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": sorted(lora.targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "use_dora": False,
        "use_rslora": False,
        "base_model_name_or_path": base_name,
        "revision": base_digest,
    }
    text = json.dumps(config, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")
    return [CONFIG, WEIGHTS]
