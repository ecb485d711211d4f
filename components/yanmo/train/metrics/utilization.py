"""How much of the machine a training uses: memory, model FLOPs utilization (MFU), and `--profile`'s trace.

    MFU = tokens/s x FLOPs per token / (ranks x peak FLOP/s of the device in bf16)
    FLOPs per token = 6 x (parameters of all matrices but the input embedding) + 12 x layers x H x E x T

as nanochat and torchtitan count (6 per weight for forward and backward, 12 = 2 products x 2 x 3 for attention
over all T positions, without a discount for causality and without recomputation); H x E is the width of all
query heads, T the context. Tokens are predicted tokens: padding is no work that counts. Peaks are the
vendors' dense bf16 figures: of data center cards as in torchtitan/tools/utils.py and in their data sheets, of
GeForce cards as in the white papers of GA102, Ada and RTX Blackwell, "with FP32 accumulate". --peak-tflops
gives another one; on any other device MFU is left out.
"""

from __future__ import annotations

import logging
import re
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from yanmo.common.made_by import processor
from yanmo.common.words import plural
from yanmo.model.decoder import DecoderConfig
from yanmo.train.config import TrainConfig
from yanmo.train.job import TRACE

log = logging.getLogger(__name__)

PEAK_FLOPS = {
    "GB200": 2.5e15,
    "B200": 2.25e15,
    "GH200": 989e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H800": 989e12,
    "H20": 148e12,
    "A100": 312e12,
    "A800": 312e12,
    "A40": 149.7e12,
    "A30": 165e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 6000 Ada": 364.2e12,
    "RTX A6000": 154.8e12,
    "RTX 5090": 209.5e12,
    "RTX 5080": 112.6e12,
    "RTX 5070 Ti": 87.9e12,
    "RTX 5070": 61.7e12,
    "RTX 4090": 165.2e12,
    "RTX 4080": 97.5e12,
    "RTX 3090 Ti": 80e12,
    "RTX 3090": 71e12,
    "RTX 3080": 59.5e12,
    "RTX 3070": 40.6e12,
}
"""Words of the device's name -> dense bf16 FLOP/s, of GeForce cards with sums in fp32."""
_OTHER_CHIPS = r"(?! (?:Ti|SUPER|D|Laptop|Mobile|Max-Q)\b)"
"""Words behind a card's name that make it another chip."""


def peak_flops(device_name: str) -> float | None:
    """Dense bf16 FLOP/s of a device; None for one that is not in the table."""
    for name in sorted(PEAK_FLOPS, key=len, reverse=True):
        if re.search(rf"(?<!\w){name}(?!\w){_OTHER_CHIPS}", device_name) and "Laptop" not in device_name:
            return PEAK_FLOPS[name]
    return None


def device_name(device: torch.device) -> str:
    """Return what a person calls the device: the GPU's or the processor's model; "" where nobody says."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()


def flops_per_token(shape: DecoderConfig, context: int) -> float:
    """FLOPs of forward and backward per predicted token; see the top of this file."""
    heads = shape.num_attention_heads * shape.head_dim
    keys = shape.num_key_value_heads * shape.head_dim
    layer = shape.hidden_size * (2 * heads + 2 * keys + 3 * shape.intermediate_size)
    matrices = shape.num_hidden_layers * layer + shape.vocab_size * shape.hidden_size
    return 6.0 * matrices + 12.0 * shape.num_hidden_layers * heads * context


def resident_memory() -> tuple[int, int]:
    """Return the bytes of this process in memory, now and at most.

    Linux counts the peak of `getrusage` from before `exec`: a small process started by a large one
    reports the large one's memory. `VmHWM` is of this process alone.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", status, re.M))
        return 1024 * int(found["VmRSS"]), 1024 * int(found["VmHWM"])
    except (OSError, KeyError):
        unit = 1 if sys.platform == "darwin" else 1024
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return most, most


class Utilization:
    """Metrics of one rank's device."""

    def __init__(
        self, device: torch.device, options: TrainConfig, shape: DecoderConfig, attention: str
    ) -> None:
        self._attention = attention
        self._device = device
        self._flops = flops_per_token(shape, options.context)
        peak = 1e12 * options.peak_tflops
        if not peak and device.type == "cuda":
            peak = peak_flops(torch.cuda.get_device_name(device)) or 0.0
        self._peak = peak * options.world_size

    def figures(self, tokens_per_second: float) -> dict[str, Any]:
        """Return the memory of this rank now and at most, bytes; FLOP/s; MFU where a peak is known."""
        now, most = self._memory()
        found: dict[str, Any] = {"attention": self._attention, "memory_bytes": now, "memory_peak_bytes": most}
        found["flops_per_second"] = tokens_per_second * self._flops
        if self._peak:
            found["peak_flops_per_second"] = self._peak
            found["mfu"] = found["flops_per_second"] / self._peak
        return found

    def allocator_retries(self) -> int:
        """Return how often the device's allocator had to give its cache back to go on."""
        if self._device.type != "cuda":
            return 0
        return int(torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0))

    def _memory(self) -> tuple[int, int]:
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device), torch.cuda.max_memory_allocated(self._device)
        return resident_memory()


def profiler(folder: Path, steps: int, device: torch.device) -> torch.profiler.profile | None:
    """Begin `--profile N`: a trace of N steps, of the fourth on, for chrome://tracing or ui.perfetto.dev.

    `step` of it is called after each step, and `stop` at the end. The file is stored next to the model as a
    record. Profiling slows its own steps down (the speed in metrics.jsonl shows it) and changes no number.
    None where no step is asked for.
    """
    if not steps:
        return None
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)

    def write(profile: torch.profiler.profile) -> None:
        temporary = folder / f".tmp-{TRACE}"
        profile.export_chrome_trace(str(temporary))
        temporary.replace(folder / TRACE)
        log.info("profiled %s", plural(steps, "step"))

    made = torch.profiler.profile(
        activities=activities,
        schedule=torch.profiler.schedule(wait=2, warmup=1, active=steps, repeat=1),
        on_trace_ready=write,
    )
    made.start()
    return made
