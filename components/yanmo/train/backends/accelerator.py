"""Device, compiler and attention: what is set in torch and in the decoder before the engine is made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from yanmo.common.errors import EnvironmentFault
from yanmo.train.backends.hardware import check_compiler
from yanmo.train.config import TrainConfig

if TYPE_CHECKING:
    from yanmo.model.decoder import Decoder


def before_torch() -> None:
    """Set the environment variables that torch reads when it is imported; a given value wins."""
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def find_device(asked: str) -> str:
    """Return the device to train on: cpu, cuda or mps; auto is cuda if there is a GPU, else cpu.

    Raises:
        EnvironmentFault: this machine does not have the device asked for.
    """
    if asked == "cpu":
        return asked
    import torch

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked != "auto" and not found[asked]:
        raise EnvironmentFault(f"--device {asked}: this machine has no such device; use --device cpu")
    return asked if asked != "auto" else "cuda" if found["cuda"] else "cpu"


def prepare(decoder: Decoder, options: TrainConfig, device: str) -> str:
    """Set torch and the decoder up as the options ask; returns the name of the attention path for the log.

    Raises:
        EnvironmentFault: an option asks for something that is not available here.
    """
    import torch

    from yanmo.model.attention import DTYPES, activate_best_flash, choose_path, lowest_capability, path_name
    from yanmo.model.decoder import Block

    check_compiler(options, device)
    dtype = DTYPES[options.precision]
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32
    capability = lowest_capability() if device == "cuda" else None
    one_each, head_width = options.packing == "one", decoder.config.head_dim
    path = choose_path(options.attention, device, dtype, one_each, head_width, capability)
    kernel = activate_best_flash() if path == "varlen" else ""
    decoder.attention = path
    decoder.recompute = options.gradient_checkpointing
    decoder.compiles_loss = options.compile and device == "cuda"
    for layer in decoder.model.layers:
        assert isinstance(layer, Block)
        layer.dropout = options.dropout
        if options.compile:
            layer.compile()
    return path_name(path, kernel)
