"""What a step of a training takes, sends and needs, from the options of `yanmo train` and a `Machine`.

For P parameters on N ranks, e bytes per weight that the forward reads, seconds of one optimizer step:

    compute    forwards x tokens of a micro batch x FLOPs per token / (peak x share); with gradient
               checkpointing the layers' forward again. FLOPs per token are those of the MFU
               (components/yanmo/train/metrics/utilization.py). The share grows with the width.
    network    calls x (call + hops x latency) + passes x S (N - 1) / N / bandwidth, for each collective.
               A ring has one pass for a reduce-scatter or an all-gather, two for an all-reduce; it is as slow
               as its slowest place: the link inside a node, or the node's network shared by all its ranks.
    update     bytes of states that are read and written / bandwidth of the memory; Muon's products
    exchange   the flags that ranks exchange between steps, a ring through the CPU

What overlaps with computing costs only what it takes longer. Memory is not modelled here a second time: it is
the estimate that `yanmo train` makes before it starts (components/yanmo/train/memory/estimate.py).

`OURS` sends what DeepSpeed 0.19.8 sends under `yanmo train`, counted call by call in real steps
(`python benchmarks/scale.py --measure`). `PAPER` sends what the ZeRO paper says (arXiv 1910.02054, section
7), all of it overlapped: what published runs with FSDP or Megatron come near to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from scale_machine import Machine

from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import Estimate, activations, estimate
from yanmo.train.metrics.utilization import flops_per_token
from yanmo.train.models.first_decoder import decoder_config

PASSES = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}
"""How often a ring sends the whole buffer, but for one rank's part."""
_BUCKET = 500_000_000
"""Elements of one call of a reduction or a gather (DeepSpeed's default, in stages 1 and 2)."""
_PREFETCH = 50_000_000
"""Elements that ZeRO-3 gathers in one call at least, where there are as many (DeepSpeed's default)."""
_REUSE = 1_000_000_000
"""ZeRO-3 keeps gathered weights that it reads again within so many (DeepSpeed's default): the last layers of
the forward pass, which the backward pass begins with, are gathered once."""
_MATRICES = 7
"""Of a layer: queries, keys, values, output, gate, up, down."""
_NORMS = 4
"""Of a layer: before attention, before the feed-forward, of queries, of keys."""


@dataclass(frozen=True)
class Engine:
    """What is sent."""

    name: str
    gradient_bytes: int
    """Per gradient, on the wire."""
    reduction: str
    """Of the gradients in stages 1 and 2."""
    overlaps: tuple[int, ...]
    """Stages that send while they compute."""
    is_ours: bool = False


OURS = Engine("yanmo train", 4, "all-reduce", (3,), is_ours=True)
PAPER = Engine("ZeRO paper", 2, "reduce-scatter", (1, 2, 3))


class Sent(NamedTuple):
    """A kind of collective in one optimizer step."""

    what: str
    kind: str
    size: float
    """Bytes of the whole buffer, of all times together."""
    calls: float
    overlaps: bool

    def on_the_wire(self, ranks: int) -> float:
        """Bytes that each rank sends."""
        return PASSES[self.kind] * self.size * (ranks - 1) / ranks


@dataclass(frozen=True)
class Prediction:
    """One optimizer step; seconds and bytes of one rank."""

    compute: float
    network: float
    """Of all collectives, overlapped or not."""
    waiting: float
    """What of that does not hide behind computing."""
    update: float
    exchange: float
    overhead: float
    sent_bytes: float
    flops: float
    """Of the model, without what is computed again."""
    tokens: int
    """Of the whole step."""
    memory: Estimate

    @property
    def seconds(self) -> float:
        """Of the step."""
        return self.compute + self.waiting + self.update + self.exchange + self.overhead

    @property
    def compute_share(self) -> float:
        """Share of the step in which the model is computed."""
        return self.compute / self.seconds

    def mfu(self, machine: Machine, ranks: int) -> float:
        """Model FLOPs utilization."""
        return self.flops / self.seconds / (ranks * machine.peak_flops)


def weight_bytes(options: TrainConfig) -> int:
    """Of a weight that the forward reads."""
    return 2 if options.precision == "bf16" else 4


def layer_parameters(options: TrainConfig) -> int:
    """Of the matrices of one layer."""
    o = options
    return o.width * (2 * (o.heads + o.kv_heads) * o.head_width + 3 * o.feed_forward)


def collectives(options: TrainConfig, vocab_size: int, engine: Engine) -> list[Sent]:
    """What all ranks send in one optimizer step."""
    o, count, forwards = options, options.num_parameters(vocab_size), options.accumulation
    if o.ranks == 1:
        return []
    weights, gradients = weight_bytes(o) * count, engine.gradient_bytes * count
    overlaps = o.zero_stage in engine.overlaps
    if o.zero_stage < 3:
        times, calls = forwards if o.zero_stage == 2 else 1, -(-count // _BUCKET)
        found = [
            Sent("gradients", engine.reduction, times * gradients, times * calls, overlaps),
            Sent("weights", "all-gather", weights, calls, overlaps),
        ]
    else:
        calls = math.ceil(count / max(layer_parameters(o), min(_PREFETCH, count)))
        times = forwards * (2 - min(count, _REUSE / 2) / count if engine.is_ours else 2)
        found = [
            Sent("gradients", "reduce-scatter", forwards * gradients, forwards * calls, overlaps),
            Sent("weights", "all-gather", times * weights, times * calls, overlaps),
        ]
    if engine.is_ours:
        found += _muon_sends(o)
    return found


def _cut_matrices(options: TrainConfig) -> int:
    """Matrices that lie on several ranks: all under ZeRO-3, else one at each border of two ranks."""
    count = _MATRICES * options.layers
    return count if options.zero_stage == 3 else min(count, options.ranks - 1)


def _muon_sends(options: TrainConfig) -> list[Sent]:
    """Muon puts cut matrices together (components/yanmo/train/backends/optimizer.py)."""
    o = options
    if o.optimizer != "muon" or o.ranks == 1:
        return []
    cut, count = _cut_matrices(o), _MATRICES * o.layers
    size = 4.0 * o.layers * layer_parameters(o) * cut / count
    times = 2 if cut >= o.ranks else 1
    return [Sent("Muon's matrices", "all-reduce", times * size, times, False)]


def _newton_schulz(options: TrainConfig) -> float:
    """FLOPs of Muon's update of all matrices: five rounds of three products each."""
    o = options
    queries, keys = o.heads * o.head_width, o.kv_heads * o.head_width
    shapes = [(o.width, queries)] * 2 + [(o.width, keys)] * 2 + [(o.width, o.feed_forward)] * 3
    one = sum(5 * (4 * min(a, b) ** 2 * max(a, b) + 2 * min(a, b) ** 3) for a, b in shapes)
    return float(o.layers * one)


def _muon_share(options: TrainConfig) -> float:
    """Share of the matrices whose update one rank computes."""
    o, count = options, _MATRICES * options.layers
    cut = _cut_matrices(o) if o.ranks > 1 else 0
    if cut >= o.ranks:  # the cut ones are dealt out
        return math.ceil(cut / o.ranks) / count + (count - cut) / count / o.ranks
    if o.zero_stage == 3 and o.ranks > 1:
        return 1.0  # fewer matrices than ranks: each rank holds a part of every one and computes them all
    return min(1.0, (count / o.ranks + (1 if cut else 0)) / count)


def collective_seconds(sent: Sent, ranks: int, machine: Machine) -> float:
    """Of all its calls; 0 on a single rank."""
    if ranks == 1:
        return 0.0
    nodes = -(-ranks // machine.ranks_per_node)
    bandwidth = (
        machine.link_bandwidth if nodes == 1 else min(machine.link_bandwidth, machine.network_bandwidth)
    )
    hops = (ranks - nodes) * machine.link_latency + (nodes - 1) * machine.network_latency
    latency = sent.calls * (machine.call_latency + PASSES[sent.kind] * hops)
    seconds = latency + sent.on_the_wire(ranks) / (bandwidth * machine.link_share)
    return seconds * max(1.0, ranks / machine.cores if machine.cores else 1.0)


def sharing(ranks: int, machine: Machine) -> float:
    """Times longer that a rank computes because others do too; 1 where each has its own device."""
    if not machine.cores:
        return 1.0
    return max(1.0, ranks / machine.cores) * (machine.crowding if min(ranks, machine.cores) > 1 else 1.0)


def compute_seconds(options: TrainConfig, vocab_size: int, machine: Machine) -> float:
    """Forwards and backwards of a step on one rank."""
    o, tokens = options, options.rank_rows * options.context
    shape = decoder_config(o, vocab_size)
    flops = flops_per_token(shape, o.context)
    if o.gradient_checkpointing:
        flops += (flops - 6.0 * vocab_size * o.width) / 3
    kept = activations(o, vocab_size, o.micro_rows, weight_bytes(o), machine.device) * o.accumulation
    alone = (
        tokens * flops / (machine.peak_flops * machine.compute_share(o.width)) + kept / machine.kept_bandwidth
    )
    return alone * sharing(o.ranks, machine)


def update_seconds(options: TrainConfig, vocab_size: int, machine: Machine) -> float:
    """Accumulation, norm, clipping and update on one rank."""
    o, count, e = options, options.num_parameters(vocab_size), weight_bytes(options)
    kept = count if o.zero_stage == 1 else count / o.ranks
    added = ((e + 4) * count + 4 * kept) * o.accumulation if e == 2 else 0  # bf16 to an fp32 sum
    # per element: norm 4, clip 8, gradient, weight and its momenta 28 (Muon: 44), bf16 copy, zeroing 4
    moved = (60 if o.optimizer == "muon" else 44) + (6 if e == 2 else 0)
    share = 1 if o.backend == "torch" else o.ranks
    seconds = (added + moved * count / share) / machine.memory_bandwidth
    if o.optimizer == "muon":
        flops = _newton_schulz(o) * _muon_share(o)
        seconds += flops / (machine.peak_flops * machine.compute_share(o.width))
    return seconds * sharing(o.ranks, machine)


def tensors(options: TrainConfig) -> int:
    """Parameters of the model, each counted once however large."""
    return (_MATRICES + _NORMS) * options.layers + 3


def _fetching(options: TrainConfig, machine: Machine) -> float:
    """What ZeRO-3 does for each tensor at each forward, on the processor."""
    o = options
    return (
        tensors(o) * o.accumulation * machine.fetch_overhead * sharing(o.ranks, machine) * (o.zero_stage == 3)
    )


def predict(options: TrainConfig, vocab_size: int, machine: Machine, engine: Engine = OURS) -> Prediction:
    """One optimizer step of a training with these options."""
    o = options
    compute = compute_seconds(o, vocab_size, machine)
    sent = collectives(o, vocab_size, engine)
    seconds = [collective_seconds(s, o.ranks, machine) for s in sent]
    hidden = sum(t for s, t in zip(sent, seconds, strict=True) if s.overlaps)
    waiting = sum(seconds) - hidden + max(0.0, hidden - compute)
    fetching = _fetching(o, machine) if engine.is_ours else 0.0
    if machine.device == "cuda":  # its processor runs ahead
        fetching = max(0.0, fetching - max(compute, hidden))
    tokens = o.batch_rows * o.context
    return Prediction(
        compute=compute,
        network=sum(seconds),
        waiting=waiting,
        update=update_seconds(o, vocab_size, machine),
        exchange=(o.ranks - 1) * machine.exchange_latency if engine.is_ours else 0.0,
        overhead=machine.step_overhead * sharing(o.ranks, machine) + fetching,
        sent_bytes=sum(s.on_the_wire(o.ranks) for s in sent),
        flops=tokens * flops_per_token(decoder_config(o, vocab_size), o.context),
        tokens=tokens,
        memory=estimate(o, vocab_size, machine.device),
    )


def checkpoint_bytes(options: TrainConfig, vocab_size: int) -> int:
    """Of a whole checkpoint: weights and optimizer states in fp32 (docs/long-training.md)."""
    o, count = options, options.num_parameters(vocab_size)
    tables = (1 if o.tied_head else 2) * vocab_size * o.width
    return 4 * count + 8 * tables + (4 if o.optimizer == "muon" else 8) * (count - tables)
