"""How the ranks of a training come together, and what they exchange besides numbers: nothing is a pickle.

On one node they meet in a file that the supervisor made (`MEETING`), so that no store of theirs listens
anywhere; gloo and NCCL, which do, are held to the loopback interface (supervision/ranks.py). A rank that is
alone meets nobody. On several nodes, rank 0 serves torch's store at MASTER_ADDR and MASTER_PORT.

torch's own `all_gather_object` and `broadcast_object_list` unpickle what another rank sends, and so what
anybody sends who reaches its port: unpickling runs code. Here it is JSON.

Alternative not taken: torch's TCPStore at a loopback socket of the supervisor's (`master_listen_fd`). Every
user of the machine reaches it, and may set keys; the file is this training's alone.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from yanmo.train.job import MEETING


def join(backend: str, timeout: timedelta) -> None:
    """Join the other ranks, unless this process has: RANK and WORLD_SIZE say which rank it is.

    Args:
        backend: gloo or nccl.
        timeout: of collectives.
    """
    if dist.is_initialized():
        return
    rank, size, path = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ.get(MEETING, "")
    together: Any = None  # torch's own: over MASTER_ADDR
    if size == 1:
        together = dist.HashStore()  # type: ignore[attr-defined]
    elif path:
        together = dist.FileStore(path, size)  # type: ignore[attr-defined]
    if together is not None:
        together.set_timeout(timeout)  # 5 minutes otherwise, and a rank may import torch for longer
    dist.init_process_group(backend, timeout=timeout, rank=rank, world_size=size, store=together)


def gather(value: Any, device: torch.device) -> list[Any]:
    """Every rank's value, in the order of ranks; called by all together.

    Args:
        value: of JSON's kinds; a tuple arrives as a list.
        device: that of the process group.
    """
    own = _bytes_of(value)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(own)], device=device))
    counts = [int(size) for size in sizes]
    padded = torch.zeros(max(counts), dtype=torch.uint8)
    padded[: len(own)] = own
    everyone = [torch.empty(len(padded), dtype=torch.uint8, device=device) for _ in counts]
    dist.all_gather(everyone, padded.to(device))
    return [_value_of(data[:count]) for data, count in zip(everyone, counts, strict=True)]


def from_first(value: Any, group: Any = None) -> Any:
    """Rank 0's value, on every rank; called by all together, over a group of the CPU's.

    Args:
        value: as in `gather`; that of other ranks does not matter.
    """
    own = _bytes_of(value)
    size = torch.tensor([len(own)])
    dist.broadcast(size, 0, group=group)
    data = own if dist.get_rank() == 0 else torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(data, 0, group=group)
    return _value_of(data)


def _bytes_of(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _value_of(data: Tensor) -> Any:
    return json.loads(data.cpu().numpy().tobytes())
