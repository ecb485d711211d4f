"""What scores: GPUs, each with a copy of the model, or the CPU."""

from __future__ import annotations

import copy
import os
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
    return [copy.deepcopy(model).to(f"cuda:{i}") for i in share_of_devices(number)]


def share_of_devices(number: int) -> list[int]:
    """The GPUs of this process: all that it sees, or its share where torchrun started other processes
    here."""
    local = int(os.environ.get("LOCAL_RANK") or 0)
    return list(range(number))[local :: _num_local_processes()] or ([local % number] if number else [])


def ran_on(device: str, world_size: int) -> dict[str, Any]:
    """What scored, for the cost on promote's page: the kind of device, and how many over all processes.

    Those that torchrun started on one machine see the same GPUs, which count once.
    """
    gpus = _num_gpus(device)
    number = gpus * world_size // _num_local_processes() if gpus else world_size
    return {"device": "cuda" if gpus else "cpu", "ranks": number}


def _num_gpus(device: str) -> int:
    return torch.cuda.device_count() if device != "cpu" else 0


def _num_local_processes() -> int:
    """Processes of this run on this machine, as torchrun says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
