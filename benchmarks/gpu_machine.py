"""What benchmarks/gpu.sh runs on: versions, card, kernels."""

from __future__ import annotations

import importlib.metadata
import inspect
import platform
from collections.abc import Iterator
from typing import Any

import torch
from gpu_report import Measure, holds, skipped

from yanmo.model.attention import lowest_capability, varlen_problem
from yanmo.train.backends.accelerator import compile_problem


def machine(setting: Any) -> Iterator[Measure]:
    """The versions, in the place of reasons; fails where the device is not there."""
    there = setting.device == "cpu" or torch.cuda.is_available()
    name = torch.cuda.get_device_name() if setting.device == "cuda" and there else platform.machine()
    packages = [
        f"{p} {_version(p)}" for p in ("torch", "triton", "deepspeed", "numpy", "tokenizers", "numba")
    ]
    yield holds(
        f"{setting.device}: {name}", there, f"Python {platform.python_version()}, {', '.join(packages)}"
    )
    if setting.device != "cuda" or not there:
        return
    capability = lowest_capability()
    yield holds(f"compute capability {capability}", capability is not None, f"CUDA {torch.version.cuda}")
    for width in (64, 128):
        problem = varlen_problem("cuda", torch.bfloat16, width, capability)
        yield (
            skipped(f"varlen, heads of {width}", problem)
            if problem
            else holds(f"varlen, heads of {width}", True, _signature())
        )
    problem = compile_problem("cuda")
    yield skipped("compile", problem) if problem else holds("compile", True, "compiler, headers and Triton")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _signature() -> str:
    from torch.nn.attention.varlen import varlen_attn

    return "torch's signature: " + ", ".join(inspect.signature(varlen_attn).parameters)
