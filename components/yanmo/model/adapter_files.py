"""An adapter as peft reads and writes it: adapter_config.json and adapter_model.safetensors.

What it was trained beside is named by its content digest (`revision`, where peft says which version of the
base model is meant), so that it cannot be put on another model by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from yanmo.common.errors import DataError
from yanmo.common.json_object import read_object
from yanmo.model.hf_export import read_tensors
from yanmo.model.lora import A, B
from yanmo.model.lora_shape import Lora
from yanmo.model.weights_check import check_file, header_of
from yanmo.model.weights_file import write_tensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_ABOVE = "base_model.model."
"""What peft puts before the names of the model's own parameters."""
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "layers_to_transform": (None, []),
}
"""Setting -> what it may be: others change the sums."""


class Adapter(NamedTuple):
    """An adapter read from its folder."""

    lora: Lora
    weights: dict[str, Tensor]
    """By the names of an adapted decoder's parameters."""
    base_digest: str
    """Content digest of the model that it belongs to; "" where it was not made here."""


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


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder, ours or peft's.

    Raises:
        DataError: a file is missing or damaged, or it is of a kind whose sums are others.
    """
    path, weights = folder / CONFIG, folder / WEIGHTS
    if not weights.is_file():
        pickled = (folder / "adapter_model.bin").is_file()
        found = "; adapter_model.bin is a pickle, which can run any code, and is not read" * pickled
        raise DataError(
            f"{folder}: expected {WEIGHTS}, not there{found}: save it again with peft's save_pretrained"
        )
    value = read_object(path)
    for name, allowed in _PLAIN.items():
        if value.get(name, allowed[0]) not in allowed:
            raise DataError(
                f"{path}: {name} {value[name]!r:.60} is not supported: its sums are others; expected plain "
                "LoRA"
            )
    rank: Any = value.get("r")
    alpha: Any = value.get("lora_alpha")
    targets: Any = value.get("target_modules")
    is_named = isinstance(targets, list) and targets and all(isinstance(name, str) for name in targets)
    is_number = type(alpha) in (int, float) and 0 < alpha < float("inf")
    if type(rank) is not int or rank < 1 or not is_number or not is_named:
        raise DataError(
            f"{path}: expected r, lora_alpha and target_modules, a list of names; found {rank!r:.40}, "
            f"{alpha!r:.40} and {targets!r:.60}; save it again with peft's save_pretrained"
        )
    lora = Lora(rank=rank, alpha=float(alpha), dropout=0.0, targets=tuple(sorted(targets)))
    return Adapter(lora, _tensors(weights), str(value.get("revision") or ""))


def _tensors(path: Path) -> dict[str, Tensor]:
    headers = header_of(path)
    check_file(headers)
    found = {name.removeprefix(_ABOVE): value.float() for name, value in read_tensors(path).items()}
    wrong = next((name for name in found if not name.endswith((A, B))), "")
    if wrong:
        raise DataError(f"{path}: holds {wrong}, which is no part of a plain LoRA adapter; copy it again")
    return found


def check_fits(adapter: Adapter, shapes: Mapping[str, tuple[int, ...]], who: str, place: Path) -> None:
    """Check that an adapter belongs to a model of these weights.

    Args:
        shapes: the model's weights by name.
        who: the model, for the message.
        place: the adapter's folder.

    Raises:
        DataError: it has parts of layers that the model lacks, of other shapes, or the half of a pair.
    """
    names = {name.removesuffix(A).removesuffix(B) for name in adapter.weights}
    for name in sorted(names):
        weight, rank = shapes.get(f"{name}.weight"), adapter.lora.rank
        found = [
            tuple(adapter.weights[name + part].shape) for part in (A, B) if name + part in adapter.weights
        ]
        expected = [] if weight is None else [(rank, weight[1]), (weight[0], rank)]
        if found != expected or len(found) != 2:
            raise DataError(
                f"{place}: belongs to another model than {who}: {name} has parts of the shapes {found}, "
                f"expected {expected or 'none: there is no such layer'}; name the model that it was trained "
                "on"
            )
    left = {name.rpartition(".")[2] for name in names} ^ set(adapter.lora.targets)
    if not names or left:
        raise DataError(
            f"{place}: {CONFIG} names {', '.join(adapter.lora.targets)}, and {WEIGHTS} holds parts of "
            f"{', '.join(sorted({name.rpartition('.')[2] for name in names})) or 'nothing'}; copy it again"
        )
