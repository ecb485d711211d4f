"""What `--precision` is in torch."""

from __future__ import annotations

import torch

from yanmo.model.attention import lowest_capability
from yanmo.model.flash_limits import half_precision

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def fast_products(device: torch.device) -> torch.dtype:
    """The dtype of products whose rounding matters little: of 16 bits where the device is made for them."""
    if device.type != "cuda":
        return torch.float32
    return DTYPES[half_precision(lowest_capability())]
