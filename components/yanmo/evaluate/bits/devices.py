"""What scores: GPUs, each with a copy of the model, or the CPU."""

from __future__ import annotations

import copy
from typing import Any

import torch

from yanmo.common.errors import EnvironmentFault
from yanmo.model.decoder import Decoder


def on_devices(model: Decoder, device: str) -> list[Decoder]:
    """A copy of the model on each GPU; none where the CPU is to be used.

    Raises:
        EnvironmentFault: a GPU is asked for, and there is none.
    """
    number = _num_gpus(device)
    if device == "cuda" and not number:
        raise EnvironmentFault(
            "--device cuda: this machine shows no GPU to torch; use one that does, or --device cpu or auto"
        )
    return [copy.deepcopy(model).to(f"cuda:{i}") for i in range(number)]


def ran_on(device: str) -> dict[str, Any]:
    """Return what scored, for the cost on promote's page: the kind of device, and how many."""
    gpus = _num_gpus(device)
    return {"device": "cuda" if gpus else "cpu", "ranks": gpus or 1}


def _num_gpus(device: str) -> int:
    return torch.cuda.device_count() if device != "cpu" else 0
