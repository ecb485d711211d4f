"""What benchmarks/gpu.sh runs on: versions, card, kernels."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterator
from typing import Any

import torch
from gpu_report import Measure, holds, skipped, within

from yanmo.model.attention import lowest_capability, varlen_problem
from yanmo.stage.gpu import figures_of
from yanmo.stage.nvml import LIBRARY, Nvml
from yanmo.train.backends.accelerator import compile_problem


def machine(setting: Any) -> Iterator[Measure]:
    """The versions, in the place of reasons; fails where the device is not there."""
    there = setting.device == "cpu" or torch.cuda.is_available()
    name = torch.cuda.get_device_name() if setting.device == "cuda" and there else platform.machine()
    packages = {each.name: each.version for each in importlib.metadata.distributions()}
    said = [
        f"{p} {packages.get(p, 'absent')}" for p in ("torch", "triton", "deepspeed", "numpy", "tokenizers")
    ]
    yield holds(f"{setting.device}: {name}", there, f"Python {platform.python_version()}, {', '.join(said)}")
    if setting.device != "cuda" or not there:
        return
    capability = lowest_capability()
    yield holds(f"compute capability {capability}", capability is not None, f"CUDA {torch.version.cuda}")
    problem = varlen_problem("cuda", torch.bfloat16, 64, capability)
    yield skipped("varlen", problem) if problem else holds("varlen", True, "its kernel is there")
    problem = compile_problem("cuda")
    yield skipped("compile", problem) if problem else holds("compile", True, "compiler, headers and Triton")
    yield from _driver()


def _driver() -> Iterator[Measure]:
    """The figures that /metrics takes from the driver (docs/reference/metrics.md), of a real card."""
    nvml = Nvml.open()
    gpus = nvml.gpus() if nvml else []
    if nvml is None or not gpus:
        yield skipped("NVML", f"{LIBRARY} is not here, or shows no GPU")
        return
    began = time.monotonic()
    found = figures_of(gpus[0])
    took = 1000 * (time.monotonic() - began)
    values = {name: value for name, value, labels in found if not labels}
    said = ", ".join(f"{name} {value:.6g}" for name, value in values.items() if value is not None)
    yield holds(
        f"NVML {nvml.driver()}", bool(gpus[0].ask("GetUUID")), f"one reading took {took:.0f} ms: {said}"
    )
    absent = sorted({name for name, value, _ in found if value is None})
    yield holds("NVML, not supported by this card", True, ", ".join(absent) or "nothing")
    total = torch.cuda.mem_get_info()[1]
    yield within("NVML, memory beside torch's", abs((values["memory_bytes"] or 0) / total - 1), 0.02, "ECC")
    bounds = {
        "utilization_ratio": (0, 1),
        "temperature_celsius": (5, 120),
        "power_watts": (1, 3000),
        "power_limit_watts": (1, 3000),
    }
    for name, (least, most) in bounds.items():
        value = values[name]
        yield (
            skipped(f"NVML, {name}", "not supported by this card")
            if value is None
            else holds(f"NVML, {name}", least <= value <= most, f"{value:g}, expected {least} to {most}")
        )
