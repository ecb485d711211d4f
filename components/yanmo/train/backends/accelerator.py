"""What is set on torch and on the decoder before an engine takes it over."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from yanmo.common.errors import EnvironmentFault
from yanmo.train.config import TrainConfig

if TYPE_CHECKING:
    from yanmo.model.decoder import Decoder

_COMPILERS = ("c++", "g++", "clang++")


def before_torch(options: TrainConfig) -> None:
    """Set what torch reads when it is imported."""
    if options.allocator:
        os.environ.setdefault("PYTORCH_ALLOC_CONF", options.allocator)


def find_device(asked: str) -> str:
    """cpu, cuda or mps.

    Raises:
        EnvironmentFault: asked for and not there.
    """
    if asked == "cpu":
        return asked
    import torch

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked != "auto" and not found[asked]:
        raise EnvironmentFault(f"--device {asked}: this machine has no such device; use --device cpu")
    return asked if asked != "auto" else "cuda" if found["cuda"] else "cpu"


def has_compiler() -> bool:
    """Whether torch.compile finds a C++ compiler: one named in CXX or on PATH."""
    asked = os.environ.get("CXX", "")
    return any(shutil.which(name) for name in (asked, *_COMPILERS) if name)


def check_compiler(options: TrainConfig, device: str) -> None:
    """Refuse --compile where it would fail at the first step.

    Raises:
        EnvironmentFault: no C++ compiler for a CPU; for CUDA nothing is looked for.
    """
    if options.compile and device == "cpu" and not has_compiler():
        raise EnvironmentFault(
            f"--compile on a CPU needs a C++ compiler: none of {', '.join(_COMPILERS)} is on PATH; install "
            "g++, name one in CXX, or train without --compile"
        )


def prepare(decoder: Decoder, options: TrainConfig, device: str) -> str:
    """Set the decoder up as the options ask; the name of its attention path.

    Raises:
        EnvironmentFault: what was asked for is not available here.
    """
    import torch

    from yanmo.model.attention import activate_best_flash, choose_path, path_name
    from yanmo.model.decoder import Block

    check_compiler(options, device)
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    if device == "cuda":
        torch.set_float32_matmul_precision("high" if options.tf32 else "highest")
        torch.backends.cuda.enable_cudnn_sdp(options.cudnn_attention)
    path = choose_path(options.attention, device, dtype, options.packing == "one")
    kernel = activate_best_flash() if path == "varlen" else ""
    decoder.attention = path
    decoder.recompute = options.gradient_checkpointing
    for layer in decoder.model.layers:
        assert isinstance(layer, Block)
        layer.dropout = options.dropout
        if options.compile:
            layer.compile()
    return path_name(path, kernel)
