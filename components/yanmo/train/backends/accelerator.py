"""Device, compiler and attention: what is set in torch and in the decoder before the engine is made."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from yanmo.common.errors import EnvironmentFault
from yanmo.train.config import TrainConfig

if TYPE_CHECKING:
    from yanmo.model.decoder import Decoder

_COMPILERS = ("c++", "g++", "clang++")
"""C++ compilers that torch.compile looks for on a CPU; one named in CXX comes first."""
_C_COMPILERS = ("gcc", "clang")
"""C compilers that Triton looks for on CUDA; one named in CC is used instead."""


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


def has_compiler() -> bool:
    """Return whether torch.compile finds a C++ compiler: one named in CXX or on PATH."""
    asked = os.environ.get("CXX", "")
    return any(shutil.which(name) for name in (asked, *_COMPILERS) if name)


def compile_problem(device: str) -> str:
    """Return why torch.compile cannot work on a device, and what to do; "" if it can.

    At the first step inductor compiles C++ on a CPU; on CUDA Triton builds a C module for each kernel.
    """
    if device == "cpu":
        if has_compiler():
            return ""
        return (
            f"on a CPU it needs a C++ compiler: none of {', '.join(_COMPILERS)} is on PATH; install g++, "
            "name one in CXX"
        )
    if device != "cuda":
        return ""
    named = os.environ.get("CC", "")
    if not any(shutil.which(name) for name in ((named,) if named else _C_COMPILERS)):
        found = f"CC={named} is not there" if named else f"none of {', '.join(_C_COMPILERS)} is on PATH"
        return f"on CUDA Triton needs a C compiler: {found}; install gcc and libc6-dev, name one in CC"
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # as Triton on Debian
    headers = Path(sysconfig.get_paths(scheme)["include"])
    if not (headers / "Python.h").exists():
        return f"on CUDA Triton needs Python's headers: there is no {headers}/Python.h; install python3-dev"
    if importlib.util.find_spec("triton") is None:
        return "on CUDA it needs Triton, which this torch came without; install torch's CUDA build"
    return ""


def check_compiler(options: TrainConfig, device: str) -> None:
    """Refuse --compile if it would fail at the first step; does not import torch, so no GPU is held yet.

    Raises:
        EnvironmentFault: the compiler or something else is missing; says what to do.
    """
    problem = compile_problem(device) if options.compile else ""
    if problem:
        raise EnvironmentFault(f"--compile: {problem}, or train with --compile false")


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
