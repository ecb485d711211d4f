"""Options of the machinery under a training: what computes, where, in how much memory, on how many nodes.

Names of those of several nodes are torchrun's (docs/how-to/several-nodes.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.options.fields import Options, Scalar, opt

AUTO = -1
"""--micro-batch auto: find the largest that fits."""
PRECISIONS = ("fp32", "bf16", "fp16")
MOST_THREADS = 512
"""Of a rank: many times what is of use; 10,000 on 2 CPUs took 54 s of CPU, then SIGSEGV."""


def fitting_ranks(batch_rows: int, micro_batch: int, most: int) -> int:
    """Return the largest number of ranks up to `most` that shares out a batch in whole micro batches; 0 for
    none.

    Args:
        micro_batch: one that is not above 0 is free to be any.
    """
    rows = max(micro_batch, 1)
    return next((n for n in range(most, 0, -1) if batch_rows > 0 and batch_rows % (n * rows) == 0), 0)


def rows_of_a_node(values: Mapping[str, Any]) -> int:
    """Return the rows of a batch that one node trains on; 0 where they do not divide among the nodes."""
    rows, nodes = int(values["batch_rows"]), max(int(values["nnodes"]), 1)
    return rows // nodes if rows % nodes == 0 else 0


def left_threads(values: Mapping[str, Any], cpus: int) -> int:
    """Threads of a rank where nobody gives them: all CPUs for one rank alone on them.

    Threads of one process exchange nothing (benchmarks/NOTES.md). Several ranks take a thread each, so that
    it makes no difference on how many nodes they are; a rank on a GPU computes there.
    """
    return min(cpus, MOST_THREADS) if _is_alone(values) and values["device"] != "cuda" else 1


def left_backend(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the engine where nobody gives it: torch for one rank, as DeepSpeed has nothing to share out
    there and a step takes longer under it."""
    asked = values["zero_stage"] > 1 or values["offload"] != "none"
    return {"backend": "torch" if _is_alone(values) and not asked else "deepspeed"}


def _is_alone(values: Mapping[str, Any]) -> bool:
    return bool(values["ranks"] * values["nnodes"] == 1)


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(Options, group="memory"):
    """Precision; how a step fits into memory (docs/reference/measurements.md)."""

    precision: str = opt(
        "fp32",
        "precision of weights and activations; sums and optimizer states are fp32; fp16, with dynamic loss "
        "scaling, is for GPUs without bf16 (T4, RTX 20)",
        choices=PRECISIONS,
        often=True,
        auto="bf16 on GPUs of compute capability 8.0 and above, fp16 from 7.0, else {default}",
        by_machine=True,
        form="train_precision",
    )
    micro_batch: int = opt(
        0,
        "rows per forward pass on one rank; 0 takes all rows of the rank, auto the largest number "
        "that fits into memory",
        kind="execution",
        words={"auto": AUTO},
    )
    zero_stage: int = opt(
        1,
        "DeepSpeed ZeRO stage: what is partitioned among the ranks; 1: optimizer states; 2: gradients "
        "too; 3: weights too",
        kind="execution",
        least=1,
        most=3,
    )
    offload: str = opt(
        "none",
        "what is kept in the CPU's memory instead of the GPU's; optimizer: the fp32 copy of the "
        "weights and the optimizer states",
        kind="execution",
        choices=("none", "optimizer"),
    )
    gradient_checkpointing: bool = opt(
        False,
        "compute activations again in the backward pass instead of keeping them; less memory, more time",
        kind="execution",
    )
    memory_gib: float = opt(
        0.0,
        "memory of one device (on a CPU: of this machine) to plan for, GiB; 0 takes what there is",
        kind="execution",
    )
    memory_share: float = opt(
        1.0, "largest share of each GPU's memory that a rank may take", kind="execution", above=0, most=1
    )


@dataclass(frozen=True, kw_only=True)
class MachineOptions(Options, group="machine"):
    """What computes, and where; results differ in last digits at most."""

    device: str = opt(
        "auto",
        "device to train on",
        kind="execution",
        often=True,
        choices=("auto", "cpu", "cuda", "mps"),
        auto="cuda where torch sees a GPU, else cpu",
        by_machine=True,
    )
    ranks: int = opt(
        1,
        "worker processes on each node, one per GPU or group of CPU cores",
        kind="execution",
        least=1,
        most=10_000,
        auto="one per visible GPU, fewer where the batch does not divide among them; on a CPU {default}",
        by_machine=True,
        variable="PET_NPROC_PER_NODE",
    )
    threads: int = opt(
        1,
        "CPU threads per rank",
        kind="execution",
        least=1,
        most=MOST_THREADS,
        auto="for one rank on a CPU as many as there are CPUs for its first start, as other numbers give "
        "other last digits; else {default}",
        by_machine=True,
    )
    backend: str = opt(
        "deepspeed",
        "training engine: deepspeed, or torch alone, where every rank holds everything",
        kind="execution",
        choices=("deepspeed", "torch"),
        auto="torch for one rank, unless --zero-stage or --offload needs DeepSpeed, and where it is "
        "not installed (a Mac, arm64); else {default}",
        by_machine=True,
    )
    attention: str = opt(
        "auto",
        "attention kernel, which keeps the documents of a row apart",
        kind="execution",
        choices=("auto", "varlen", "flash", "masked"),
        auto="varlen on CUDA in bf16, flash where rows hold one document and cuDNN is faster (Hopper) or "
        "varlen does not run, else masked",
        by_machine=True,
    )
    compile: bool = opt(
        False,
        "compile the layers with torch.compile; needs a C++ compiler on a CPU, a C compiler on CUDA",
        kind="execution",
        auto="true on CUDA with a C compiler, without --gradient-checkpointing, --offload and ZeRO-3; "
        "else {default}",
        by_machine=True,
    )
    prefetch_batches: int = opt(
        1,
        "batches that a thread makes ahead during a step; 0: each step waits for its own",
        kind="execution",
        most=1000,
    )
    power_watts: int = opt(
        0,
        "power limit of each GPU while it trains, watts, where the driver lets us; 0 leaves it as it is",
        kind="execution",
    )
    benchmark: bool = opt(
        False,
        "train no model, but try ranks, micro batches and backends for a few steps each, and print "
        "the fastest",
        kind="environment",
    )
    profile: int = opt(
        0,
        "steps to record, of the fourth on, in a torch profiler trace next to the model; 0 records none",
        kind="environment",
        trial=0,
    )


@dataclass(frozen=True, kw_only=True)
class EngineOptions(MemoryOptions, MachineOptions):
    """Both."""

    @property
    def updates_in_place(self) -> bool:
        """Return whether DeepSpeed updates the weights of the forward pass themselves (backends/zero.py)."""
        in_fp32 = self.precision == "fp32" and self.offload == "none"
        return self.backend == "deepspeed" and in_fp32 and self.zero_stage < 3

    def contradictions(self) -> list[str]:
        """Return what cannot be, whatever the machine."""
        problems = []
        if self.backend == "torch":
            if self.zero_stage != 1:
                problems.append(
                    f"--zero-stage {self.zero_stage} needs --backend deepspeed: torch alone partitions "
                    "nothing"
                )
            if self.offload != "none":
                problems.append(f"--offload {self.offload} needs --backend deepspeed")
        if self.device == "mps" and (self.backend != "torch" or self.ranks != 1):
            problems.append("--device mps needs --backend torch and --ranks 1")
        if self.precision == "fp16":
            if self.device == "mps":
                problems.append("--precision fp16 needs CUDA: give fp32 or bf16 with --device mps")
            if self.device == "cpu" and self.backend == "deepspeed":
                problems.append(
                    "--precision fp16 with --device cpu needs --backend torch: DeepSpeed has it on GPUs "
                    "only. A CPU gains nothing by it: give fp32 or bf16"
                )
        if self.device == "cpu":
            if self.offload != "none":
                problems.append(
                    f"--offload {self.offload} needs a GPU: with --device cpu everything is in the "
                    "CPU's memory"
                )
            if self.attention == "varlen":
                problems.append("--attention varlen needs CUDA; --device cpu has flash and masked")
        return problems


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
