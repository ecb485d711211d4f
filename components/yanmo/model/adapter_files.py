"""An adapter as peft reads it: adapter_config.json and adapter_model.safetensors.

What it was trained beside is named by its content digest (`revision`, where peft says which version of the
base model is meant), so that whoever uses it can tell which one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from yanmo.model.lora_shape import Lora
from yanmo.model.weights_file import write_tensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_ABOVE = "base_model.model."
"""What peft puts before the names of the model's own parameters."""


def write_adapter(
    folder: Path, weights: Mapping[str, Tensor], lora: Lora, base_name: str, base_digest: str
) -> list[str]:
    """Write an adapter; returns the names of its files.

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
