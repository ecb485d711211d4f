"""How the ranks of a training come together, and what they exchange besides numbers: nothing is a pickle.

On one node they meet in a file that the supervisor made (`MEETING`), so that no store of theirs listens
anywhere; gloo and NCCL, which do, are held to the loopback interface (supervision/ranks.py). A rank that is
alone meets nobody. On several nodes, rank 0 serves torch's store at the rendezvous, and each start of all
ranks meets there below a name of its own, so that a rank of an earlier one, or of a pod that is being ended,
never meets those of this one. TCPStore speaks in bytes: what a stranger sends there is never run.

torch's own `all_gather_object` and `broadcast_object_list` unpickle what another rank sends, and so what
anybody sends who reaches its port: unpickling runs code. Here it is JSON.

Alternative not taken: torch's TCPStore at a loopback socket of the supervisor's (`master_listen_fd`). Every
user of the machine reaches it, and may set keys; the file is this training's alone.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from yanmo.common.errors import EnvironmentFault, WorkerLost
from yanmo.common.logs import human_seconds
from yanmo.train.health.watchdog import JOINING
from yanmo.train.job import MEETING, PeerFailed, Place

_TRY_SECONDS = 5.0
_PORT_SECONDS = 8.0
"""How long the port of a run that ends just now is waited for."""
_LOOK_SECONDS = 0.2


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


def join_nodes(
    backend: str, timeout: timedelta, place: Place, wait_seconds: float, beat: Callable[[str], None]
) -> None:
    """Join the ranks of all nodes, which may come at any time.

    Args:
        backend, timeout: as in `join`.
        wait_seconds: longest wait for the others.
        beat: called while they are waited for.

    Raises:
        WorkerLost: some did not come; says which.
        PeerFailed: rank 0 came, and is gone.
        EnvironmentFault: the port of the rendezvous is taken.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    until = time.monotonic() + wait_seconds
    store = _serve(place, size) if rank == 0 else _reach(place, size, until, wait_seconds, beat)
    here: Any = dist.PrefixStore(place.meeting, store)  # type: ignore[attr-defined]
    try:
        here.set(f"here/{rank}", "")
        missing = [other for other in range(size) if other != rank]
        while missing := [other for other in missing if not here.check([f"here/{other}"])]:
            if time.monotonic() > until:
                nodes = sorted({other // place.ranks for other in missing})
                raise WorkerLost(
                    f"of {place.nnodes} nodes {', '.join(map(str, nodes[:10]))} did not come to port "
                    f"{place.port} of node 0 within {human_seconds(wait_seconds)} (--rendezvous-seconds): "
                    "look at their logs, or start them; the same command tries again"
                )
            beat(JOINING)
            time.sleep(_LOOK_SECONDS)
    except dist.DistNetworkError as error:  # type: ignore[attr-defined]
        raise PeerFailed(f"rank 0 at {place.address}:{place.port} is gone: {error}") from error
    store.set_timeout(timeout)
    dist.init_process_group(backend, timeout=timeout, rank=rank, world_size=size, store=here)


def _serve(place: Place, size: int) -> Any:
    """Return the store that this rank serves, at the rendezvous."""
    until = time.monotonic() + _PORT_SECONDS
    while True:
        try:
            return dist.TCPStore(  # type: ignore[attr-defined]
                place.address, place.port, size, is_master=True, wait_for_workers=False
            )
        except dist.DistNetworkError as error:  # type: ignore[attr-defined]
            if "EADDRINUSE" not in str(error) and os.strerror(errno.EADDRINUSE) not in str(error):
                raise
            if time.monotonic() > until:
                raise EnvironmentFault(
                    f"rank 0 cannot listen at port {place.port} ({os.strerror(errno.EADDRINUSE)}): end what "
                    "uses it, or give all nodes another --rendezvous (PET_MASTER_PORT)"
                ) from error
        time.sleep(_LOOK_SECONDS)


def _reach(place: Place, size: int, until: float, wait_seconds: float, beat: Callable[[str], None]) -> Any:
    """Return the store that rank 0 serves, once it does."""
    while True:
        limit = timedelta(seconds=_TRY_SECONDS)
        why = ""
        try:
            return dist.TCPStore(  # type: ignore[attr-defined]
                place.address, place.port, size, is_master=False, timeout=limit, wait_for_workers=False
            )
        except (dist.DistNetworkError, dist.DistStoreError) as error:  # type: ignore[attr-defined]
            why = str(error).partition("\n")[0]
        if time.monotonic() > until:
            raise WorkerLost(
                f"rank 0 did not answer at {place.address}:{place.port} for {human_seconds(wait_seconds)} "
                f"(--rendezvous-seconds; {why}): correct --rendezvous (PET_MASTER_ADDR, PET_MASTER_PORT), "
                "and let all nodes reach it"
            )
        beat(JOINING)
        time.sleep(_LOOK_SECONDS)


def gather(value: Any, device: torch.device) -> list[Any]:
    """Return every rank's value, in the order of ranks; called by all together.

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
    """Return rank 0's value, on every rank; called by all together, over a group of the CPU's.

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


class Collectives:
    """Collectives over a few numbers, through the CPU; every method is called by all ranks together.

    In a GPU's own process group each message would wait for all earlier kernels; a second group, over gloo,
    does not touch the device. Every rank adds up in the order of ranks, so that sums are equal to the last
    digit everywhere, however many numbers are sent together.

    Args:
        timeout: of each, as the process group's.
    """

    def __init__(self, world_size: int, device: torch.device, timeout: timedelta | None = None) -> None:
        self._ranks = world_size
        self._group: Any = None
        if world_size > 1 and device.type != "cpu":
            self._group = dist.new_group(backend="gloo", timeout=timeout)  # torch's own is half an hour

    def sums(self, numbers: Tensor) -> list[float]:
        """Return the sum over ranks of each of the numbers.

        Args:
            numbers: float64 (count), on the CPU; the same count on every rank.
        """
        if self._ranks == 1:
            return list(numbers.tolist())
        gathered = [torch.empty_like(numbers) for _ in range(self._ranks)]
        dist.all_gather(gathered, numbers, group=self._group)
        total = gathered[0]
        for one in gathered[1:]:
            total = total + one
        return list(total.tolist())

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is set on any rank."""
        if self._ranks == 1:
            return list(flags)
        return [count > 0 for count in self.sums(torch.tensor(flags, dtype=torch.float64))]

    def from_first_rank(self, numbers: Tensor) -> None:
        """Overwrite a tensor on the CPU with rank 0's, of the same size."""
        if self._ranks > 1:
            dist.broadcast(numbers, 0, group=self._group)

    def from_first(self, value: Any) -> Any:
        """Return rank 0's value, on every rank; of JSON's kinds."""
        return value if self._ranks == 1 else from_first(value, self._group)
