"""The GPUs that score: each with a copy of the model."""

from __future__ import annotations

import copy
import os

import torch

from yanmo.common.errors import UsageError
from yanmo.model.decoder import Decoder


def on_devices(model: Decoder, device: str) -> list[Decoder]:
    """A copy of the model on each GPU; none where the CPU is to be used.

    Raises:
        UsageError: a GPU is asked for, and there is none.
    """
    number = torch.cuda.device_count() if device != "cpu" else 0
    if device == "cuda" and not number:
        raise UsageError("--device cuda: this machine shows no GPU to torch; use --device cpu or auto")
    return [copy.deepcopy(model).to(f"cuda:{i}") for i in share_of_devices(number)]


def share_of_devices(number: int) -> list[int]:
    """The GPUs of this process: all that it sees, or its share where torchrun started others beside it."""
    local, beside = (int(os.environ.get(n) or d) for n, d in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")))
    return list(range(number))[local::beside] or ([local % number] if number else [])
