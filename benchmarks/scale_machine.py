"""The machines of benchmarks/scale.py: a few constants each, and where each one comes from.

Peaks are the vendors' dense bf16 figures (`PEAK_FLOPS` of components/yanmo/train/metrics/utilization.py).
Bandwidths are one direction: a data sheet's "900 GB/s NVLink" is 450 in and 450 out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from yanmo.train.metrics.utilization import PEAK_FLOPS


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Nodes of equal devices. A rank is one device; on a CPU, one process of one thread."""

    name: str
    device: str = "cuda"
    """What the estimate of memory calls it."""
    peak_flops: float
    """Of one device, FLOP/s."""
    full_share: float
    """Share of the peak that forward and backward of a very wide model reach while nothing is waited for."""
    half_width: float = 0.0
    """Width of a model that reaches half of that share."""
    memory_gib: float
    """Of one device."""
    memory_bandwidth: float
    """Of one device, bytes/s."""
    ranks_per_node: int = 8
    link_bandwidth: float
    """Of one device to the others of its node, bytes/s."""
    network_bandwidth: float = 400e9
    """Of a whole node to the other nodes, bytes/s."""
    link_share: float = 0.78
    """Share of both bandwidths that collectives reach."""
    link_latency: float = 3.4e-6
    """Of one hop of a ring inside a node, s."""
    network_latency: float = 9.6e-6
    """Of one hop between nodes, s."""
    call_latency: float = 8.4e-6
    """Of one collective, s."""
    exchange_latency: float = 50e-6
    """Of one hop of the flags that ranks exchange between steps, over TCP through the CPU, s."""
    step_overhead: float = 0.014
    """Work of a step that grows with nothing, s."""
    fetch_overhead: float = 0.0005
    """Work of the processor for each tensor and forward under ZeRO-3, s; a GPU computes meanwhile."""
    kept_bandwidth: float = float("inf")
    """Bytes of kept activations a second, besides the FLOPs; on a GPU the share of the peak holds it."""
    cores: int = 0
    """Cores that all ranks share; 0: each rank has its own device."""
    crowding: float = 1.0
    """Times longer that a rank computes while another core computes too."""
    host_memory: float = 2e12
    """Of a node, bytes."""
    host_bandwidth: float = 25e9
    """Of one device to the node's memory, bytes/s."""
    store_bandwidth: float = 5e9
    """Of the store, all ranks together, bytes/s."""
    watts: float = 700.0
    """Of one device."""
    failure_hours: float = 50_700.0
    """Hours of one device between two failures that stop a training."""
    restart_seconds: float = 600.0
    """From such a failure to the next step."""

    def compute_share(self, width: int) -> float:
        """Share of the peak that a model of this width reaches: narrow products leave units idle."""
        return self.full_share * width / (width + self.half_width)


H100 = Machine(
    name="h100",
    peak_flops=PEAK_FLOPS["H100"],
    full_share=0.687,
    half_width=1221.0,
    memory_gib=79.6,
    memory_bandwidth=3.35e12,
    link_bandwidth=450e9,
)
H200 = replace(H100, name="h200", peak_flops=PEAK_FLOPS["H200"], memory_gib=139.0, memory_bandwidth=4.8e12)
A100 = replace(
    H100,
    name="a100",
    peak_flops=PEAK_FLOPS["A100"],
    full_share=0.726,
    half_width=473.0,
    memory_gib=80.0,
    memory_bandwidth=2.039e12,
    link_bandwidth=300e9,
    network_bandwidth=200e9,
    watts=400.0,
)
MACHINES = {
    "h100": H100,
    "h200": H200,
    "a100": A100,
    "a100-40gb": replace(A100, name="a100-40gb", memory_gib=40.0, memory_bandwidth=1.555e12),
}
"""Of the H100 and the A100 `full_share` and `half_width` are fitted to two published rows each, by `fit` of
scale_published.py; the H200 has the H100's."""

MEASURED, SHEET, PUBLISHED, ASSUMED = "measured", "data sheet", "published", "assumed"
SOURCES: dict[str, tuple[str, str]] = {
    "peak_flops": (SHEET, "dense bf16"),
    "memory_gib": (SHEET, "as the driver counts it"),
    "memory_bandwidth": (SHEET, ""),
    "link_bandwidth": (SHEET, "NVLink, half of both directions"),
    "network_bandwidth": (SHEET, "8 ports of 400 Gb/s (A100: 200 Gb/s) a node"),
    "watts": (SHEET, ""),
    "host_memory": (SHEET, "DGX H100"),
    "full_share": (PUBLISHED, "fitted to two rows of llm-foundry for each GPU"),
    "half_width": (PUBLISHED, "fitted to two rows of llm-foundry for each GPU"),
    "link_share": (PUBLISHED, "NCCL, src/graph/tuning.cc: 235 of 300 GB/s on an A100"),
    "link_latency": (PUBLISHED, "NCCL, src/graph/tuning.cc, ring, Simple"),
    "network_latency": (PUBLISHED, "NCCL, src/graph/tuning.cc, ring, Simple"),
    "call_latency": (PUBLISHED, "NCCL, src/graph/tuning.cc, ring, Simple"),
    "failure_hours": (PUBLISHED, "419 failures in 54 days of 16,384 H100, arXiv 2407.21783"),
    "exchange_latency": (ASSUMED, "a round over TCP between nodes; over loopback measured, below"),
    "step_overhead": (MEASURED, "on a CPU, DeepSpeed 0.19.8, 45 tensors"),
    "fetch_overhead": (MEASURED, "on a CPU, DeepSpeed 0.19.8, 45 tensors"),
    "host_bandwidth": (ASSUMED, "half of PCIe 5.0 x16"),
    "store_bandwidth": (ASSUMED, "depends on the store: measure yours"),
    "restart_seconds": (ASSUMED, "a new pod, its image, the checkpoint"),
}
"""Constant of a GPU machine -> kind of its source, and what it is."""
