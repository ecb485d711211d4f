"""Options of a training on several machines (docs/how-to/several-nodes.md); their names are torchrun's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.options.fields import Options, Scalar, opt

MOST_NODES = 1000
_PORT = "29500"
"""torchrun's own."""


@dataclass(frozen=True, kw_only=True)
class NodesOptions(Options, group="nodes"):
    """Several machines train one model (docs/how-to/several-nodes.md)."""

    nnodes: int = opt(
        1,
        "nodes (machines, pods) that train together, with --ranks ranks each",
        kind="execution",
        least=1,
        most=MOST_NODES,
        variable="PET_NNODES",
    )
    node_rank: int = opt(
        0,
        "number of this node, from 0; node 0 holds the key and commits the model, the others end as it does",
        kind="environment",
        variable="PET_NODE_RANK",
    )
    rendezvous: str = opt(
        "",
        "where rank 0 listens for the others, HOST:PORT; default: PET_MASTER_ADDR and PET_MASTER_PORT",
        kind="environment",
        metavar="HOST:PORT",
    )
    rendezvous_seconds: float = opt(
        600.0,
        "longest wait of the nodes for each other at the beginning, seconds",
        kind="environment",
        least=1,
    )
    collective_seconds: float = opt(
        120.0,
        "with several nodes, longest wait for the others in a training step, after which a node ends with "
        "75; two thirds of it: longest time without a sign of life of a rank of its own, seconds",
        kind="environment",
        least=40,
    )

    def contradictions(self) -> list[str]:
        """Return what cannot be: a number of a node, nodes that cannot meet."""
        if self.node_rank >= self.nnodes:
            return [
                f"--node-rank {self.node_rank} of --nnodes {self.nnodes}: expected "
                f"{'0' if self.nnodes == 1 else f'0 to {self.nnodes - 1}'}, as the first node is 0"
            ]
        if self.nnodes == 1:
            return []
        if not self.rendezvous:
            return [
                f"--nnodes {self.nnodes} needs --rendezvous HOST:PORT (or PET_MASTER_ADDR and "
                "PET_MASTER_PORT), the same on every node: where rank 0 listens for the others"
            ]
        try:
            self.meeting_point()
        except ValueError as error:
            return [str(error)]
        return []

    def meeting_point(self) -> tuple[str, int]:
        """Host and port of `rendezvous`.

        Raises:
            ValueError: it is none.
        """
        host, _, port = self.rendezvous.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")  # [::1]:29500
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(
                f"--rendezvous {self.rendezvous!r}: expected HOST:PORT of node 0, such as node-0.train:29500"
            )
        return host, int(port)


def left_to_the_launcher(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return where the nodes meet, as torchrun's launchers say it (Kubeflow Trainer's torch runtime too)."""
    address = os.environ.get("PET_MASTER_ADDR", "")
    if not address or values["nnodes"] == 1:
        return {}
    address = f"[{address}]" if ":" in address else address
    return {"rendezvous": f"{address}:{os.environ.get('PET_MASTER_PORT') or _PORT}"}


def longest_silence(collective_seconds: float) -> float:
    """Return how long a rank may give its node no sign of life, seconds.

    It is less than a training step may take, so that the rank which stands still is named before those that
    wait for it.
    """
    return collective_seconds * 2 / 3
