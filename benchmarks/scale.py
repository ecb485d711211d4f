"""What a training and the curation of a corpus take before anybody rents machines: time, memory, money.

    python benchmarks/scale.py --parameters 7e9 --gpus 8,64,256
    python benchmarks/scale.py --parameters 7e9 --gpus 64 --tokens 1e12 --network 12.5 --gpu-hour-price 2
    python benchmarks/scale.py --characters 1e9 --workers 16

A step computes, waits for its network and updates. Computing is FLOPs by the share of a GPU's peak that
models of this width reached in published benchmarks. Memory is the estimate that `yanmo train` makes before
it starts. Of ZeRO-1 to 3, with and without recomputation, it takes the simplest that fits and is within 3 %
of the fastest.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import FREE_SHARE, estimate, largest_that_fits
from yanmo.train.metrics.utilization import PEAK_FLOPS, flops_per_token
from yanmo.train.models.decoders import decoder_config
from yanmo.train.options.recipe_options import num_parameters

VOCABULARY, CONTEXT = 32_768, 4096


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Nodes of eight equal GPUs; figures without a source are those of data sheets."""

    name: str
    peak: float
    """FLOP/s, dense bf16."""
    share: float
    """Of the peak, that a very wide model reaches."""
    half_width: float
    """Width of a model that reaches half of that share."""
    memory_gib: float
    """As the driver counts it."""
    memory_bandwidth: float
    """Bytes/s."""
    link: float
    """To the others of its node, one direction of NVLink, bytes/s."""
    network: float
    """Of a whole node to the others, one direction, bytes/s: eight ports of 400 Gb/s (A100: 200)."""
    watts: float
    hour_price: float
    """USD, late in 2024: aws.amazon.com/ec2/capacityblocks/pricing (the A100's is of 40 GB)."""


H100 = Gpu(
    name="h100",
    peak=PEAK_FLOPS["H100"],
    share=0.687,
    half_width=1221,
    memory_gib=79.6,
    memory_bandwidth=3.35e12,
    link=450e9,
    network=400e9,
    watts=700,
    hour_price=4.916,
)
H200 = replace(H100, name="h200", memory_gib=139.0, memory_bandwidth=4.8e12, hour_price=5.408)
A100 = Gpu(
    name="a100",
    peak=PEAK_FLOPS["A100"],
    share=0.726,
    half_width=473,
    memory_gib=80.0,
    memory_bandwidth=2.039e12,
    link=300e9,
    network=200e9,
    watts=400,
    hour_price=1.844,
)
GPUS = {gpu.name: gpu for gpu in (H100, H200, A100)}
GPUS_OF_A_NODE = 8
LINK_SHARE, HOP, NETWORK_HOP, CALL = 0.78, 3.4e-6, 9.6e-6, 8.4e-6
"""NCCL, src/graph/tuning.cc, ring, Simple: share of a bandwidth that is reached; seconds of hops, calls."""
STEP_OVERHEAD, FETCH, EXCHANGE = 0.014, 0.0005, 50e-6
"""Seconds of a step that grow with nothing; of each tensor and forward under ZeRO-3, in which the GPU goes on
(both: DeepSpeed 0.19.8, 45 tensors, AMD EPYC, 2026-11-23); of a rank in the exchange of flags (assumed)."""
GATHERED = 50_000_000
"""Weights that ZeRO-3 gathers at once (DeepSpeed's default)."""
KNOWN = (
    *((1.1e8, 16, 768), (3.4e8, 24, 1024), (1.2e9, 24, 2048)),
    *((6.7e9, 32, 4096), (1.3e10, 40, 5120), (6.9e10, 80, 8192)),
)
"""Parameters, layers, width: `medium` and `large` of `yanmo train`, GPT-3's (arXiv 2005.14165), Llama 2's."""
BATCHES = ((1e9, 2**19), (5e9, 2**20), (2e10, 2**21), (math.inf, 2**22))
"""Tokens of a step for models below so many parameters: GPT-3's."""

MEASURED = {
    "curate": (10.6, 0.97, 353, 33, 430),
    "balance": (46, 0.9, 279, 16, 403),
    "tokenize": (30, 0.86, 258, 0, 428),
}
"""Stage -> MB of text per CPU second; speed of each of two workers by one alone; MB of memory of the main
process, and bytes more for each document; MB of a worker. 2.0 GB in texts of 2.7 KB (memory: 1.0 GB), 2
cores of an Intel Xeon, 2026-11-29 (benchmarks/NOTES.md#memory-of-the-data-stages). curate takes three times
as long for texts as short as the bundled ones."""
BYTES_OF_A_CHARACTER, CHARACTERS_OF_A_DOCUMENT, TOKENS_OF_A_CHARACTER = 3, 900, 0.94
"""UTF-8; those texts'; the demo's vocabulary on its own text (benchmarks/NOTES.md)."""
CORE_HOUR_PRICE = 0.0425
"""USD: c5.2xlarge, 8 vCPU for 0.34 (docs.aws.amazon.com/autoscaling/ec2/userguide)."""

PUBLISHED = (
    *(("a100", 8, 768, 12, 12, 142_830, False), ("a100", 8, 1536, 24, 12, 32_434, False)),
    *(("a100", 8, 2048, 24, 16, 20_513, False), ("a100", 8, 2560, 32, 20, 10_811, False)),
    *(("a100", 8, 4096, 32, 32, 4_641, False), ("a100", 8, 5120, 40, 40, 2_262, False)),
    *(("a100", 8, 7168, 48, 56, 916, True), ("a100", 64, 8192, 80, 64, 410, True)),
    *(("h100", 32, 1536, 24, 12, 67_971, False), ("h100", 64, 2048, 24, 16, 44_402, False)),
    *(("h100", 64, 2560, 32, 20, 22_525, False), ("h100", 8, 4096, 32, 32, 10_643, False)),
    *(("h100", 64, 5120, 40, 40, 4_800, False), ("h100", 32, 7168, 48, 56, 2_308, True)),
    ("h100", 64, 8192, 80, 64, 1_039, True),
)
"""GPU, how many, width, layers, heads, tokens/s of each, whether it computes activations again; rows of 2,048
tokens. mosaicml/llm-foundry, scripts/train/benchmarking/README.md at 061f2c7. The A100's share is fitted to
the widths 768 and 4,096, the H100's to 1,536 and 7,168."""


def shape(parameters: float) -> dict[str, int]:
    """Layers and widths of a model of about so many parameters, as options of `yanmo train`."""
    at = min(max(parameters, KNOWN[0][0]), KNOWN[-1][0])
    (p, layers, _), (q, more, _) = next(pair for pair in itertools.pairwise(KNOWN) if at <= pair[1][0])
    guide = layers * (more / layers) ** (math.log(at / p) / math.log(q / p))

    def of(width: int) -> dict[str, int]:
        heads, ff = width // 128, round(2.75 * width / 128) * 128
        keys = heads // 8 if parameters >= 2e10 and heads % 8 == 0 else heads
        found = {"width": width, "heads": heads, "kv_heads": keys, "head_width": 128, "feed_forward": ff}
        one, two = (num_parameters({**found, "layers": n}, VOCABULARY) for n in (1, 2))
        return {"layers": max(1, round((parameters - one) / (two - one)) + 1), **found}

    def strangeness(found: dict[str, int]) -> float:
        away = abs(math.log(num_parameters(dict(found), VOCABULARY) / parameters))
        return abs(math.log(found["layers"] / guide)) + 10 * max(0.0, away - 0.05)

    return min((of(w) for w in range(128, 33 * 1024, 128) if w < 4096 or w % 1024 == 0), key=strangeness)


def options(gpu: Gpu, ranks: int, rows: int, **changes: object) -> TrainConfig:
    """Of `yanmo train`, with one row a forward; the batch is rounded to whole rows of each rank."""
    flags: dict[str, object] = {"context": CONTEXT, "batch_rows": max(1, round(rows / ranks)) * ranks}
    flags |= {"ranks": ranks, "micro_batch": 1, "optimizer": "adamw", "precision": "bf16"}
    flags |= {"device": "cuda", "attention": "varlen", "backend": "deepspeed", "memory_gib": gpu.memory_gib}
    flags |= {"valid_characters": 0, "frequent_tokens": 0, **changes}
    return load(TrainConfig, [f"--{n.replace('_', '-')}={v}" for n, v in flags.items()], "scale")


def flops(o: TrainConfig, vocabulary: int) -> float:
    """Of a token: those of the MFU, and with recomputation the layers' forward again."""
    model = flops_per_token(decoder_config(o, vocabulary), o.context)
    return model + ((model - 6.0 * vocabulary * o.width) / 3 if o.gradient_checkpointing else 0.0)


def share(gpu: Gpu, width: int) -> float:
    """Of the peak, that a model of this width reaches while it computes."""
    return gpu.share * width / (width + gpu.half_width)


def step_seconds(o: TrainConfig, gpu: Gpu) -> tuple[float, float]:
    """Seconds of a step, and those of them that compute.

    A rank sends what DeepSpeed 0.19.8 sends: gradients in fp32, weights in bf16; ZeRO-1 and 2 reduce by an
    all-reduce and gather weights while nothing computes, ZeRO-3 sends at each forward, while it computes.
    """
    count, forwards, n = o.num_parameters(VOCABULARY), o.accumulation, o.ranks
    compute = o.rank_rows * o.context * flops(o, VOCABULARY) / (gpu.peak * share(gpu, o.width))
    sent = {1: 10 * count, 2: (8 * forwards + 2) * count, 3: 8 * forwards * count}[o.zero_stage] * (n - 1) / n
    nodes = -(-n // GPUS_OF_A_NODE)
    bandwidth = gpu.link if nodes == 1 else min(gpu.link, gpu.network)
    layer = o.width * (2 * (o.heads + o.kv_heads) * o.head_width + 3 * o.feed_forward)
    calls = 3 * forwards * math.ceil(count / max(layer, GATHERED)) if o.zero_stage == 3 else 2
    network = sent / (bandwidth * LINK_SHARE)
    if n > 1:
        network += calls * (CALL + (n - nodes) * HOP + (nodes - 1) * NETWORK_HOP)
    fetching = (11 * o.layers + 3) * forwards * FETCH
    waiting = max(0.0, network - compute, fetching - compute) if o.zero_stage == 3 else network
    held = count if o.zero_stage == 1 else count / n
    moved = (6 * count + 4 * held) * forwards + 50 * count / n  # sums of gradients; AdamW, norm, clipping
    others = moved / gpu.memory_bandwidth + STEP_OVERHEAD + EXCHANGE * (n - 1)
    return compute + waiting + others, compute


@dataclass(frozen=True)
class Plan:
    """A training on so many GPUs."""

    options: TrainConfig
    seconds: float
    share: float
    """Of the time, in which the model is computed."""
    memory_gib: float
    """As the driver counts it."""
    """Of a GPU."""
    node_gb: float
    """What checkpoints and the export need of a node's memory."""

    def gpu_hours(self) -> float:
        return self.seconds * self.options.ranks / 3600

    def way(self) -> str:
        return f"Z{self.options.zero_stage}{'r' if self.options.gradient_checkpointing else ''}"


def plan(parameters: float, tokens: float, ranks: int, gpu: Gpu, batch: int = 0) -> Plan | None:
    """The simplest of the fastest ways; None where nothing fits or there are more GPUs than rows."""
    model = shape(parameters)
    count = num_parameters(dict(model), VOCABULARY)
    rows = (batch or next(size for below, size in BATCHES if count < below)) // CONTEXT
    found = []
    for stage, again in itertools.product((1, 2, 3), (False, True)) if ranks <= rows else ():
        o = options(gpu, ranks, rows, zero_stage=stage, gradient_checkpointing=again, **model)
        o = replace(o, micro_batch=largest_that_fits(o, VOCABULARY, "cuda"))
        need = estimate(o, VOCABULARY, "cuda")
        if need.total <= FREE_SHARE * gpu.memory_gib * 2**30:
            took, compute = step_seconds(o, gpu)
            steps = (tokens or 20 * count) / (o.batch_rows * CONTEXT)
            node = need.host * min(ranks, GPUS_OF_A_NODE) / 1e9
            found.append(Plan(o, steps * took, compute / took, need.total / 2**30, node))
    best = min((p.seconds for p in found), default=0.0)
    return next((p for p in found if p.seconds <= 1.03 * best), None)


def number(value: float) -> str:
    """Two digits that count."""
    if value >= 100:
        return f"{float(f'{value:.2g}'):,.0f}"
    return f"{float(f'{value:.2g}'):g}"


def training_rows(
    sizes: list[float], ranks: list[int], gpu: Gpu, tokens: float = 0, price: float = 0
) -> Iterator[str]:
    """A line of a table for each model and number of GPUs that holds it."""
    for size, n in itertools.product(sizes, ranks):
        if (p := plan(size, tokens, n, gpu)) is None:
            yield f"| {number(size / 1e9)} | {n} | | | | | | | |"
            continue
        hours = p.gpu_hours()
        cells = [number(size / 1e9), str(n), p.way(), number(p.seconds / 3600), f"{100 * p.share:.0f} %"]
        cells += [number(hours), number(hours * gpu.watts / 1e6), number(hours * (price or gpu.hour_price))]
        yield f"| {' | '.join(cells)} | {number(p.memory_gib)} / {number(p.node_gb)} |"


def curation_rows(characters: list[float], workers: int) -> Iterator[str]:
    """A line of a table for each corpus and stage."""
    for count, (stage, (speed, each, main, of_each, more)) in itertools.product(characters, MEASURED.items()):
        hours = count * BYTES_OF_A_CHARACTER / 1e6 / speed / 3600
        took = hours / (workers * (each if workers > 1 else 1))
        cells = [number(count / 1e9), stage, str(workers), number(hours), number(took)]
        main += count / CHARACTERS_OF_A_DOCUMENT * of_each / 1e6
        cells += [number((main + workers * more) / 1e3), number(took * workers * CORE_HOUR_PRICE)]
        yield f"| {' | '.join(cells)} |"


def check_rows() -> Iterator[str]:
    """Published benchmarks beside what the shares of the peak say, without network and update."""
    for name, n, width, layers, heads, published, again in PUBLISHED:
        changes = {"layers": layers, "width": width, "heads": heads, "kv_heads": heads}
        changes |= {"head_width": width // heads, "feed_forward": round(8 * width / 3)}
        o = options(GPUS[name], n, n, gradient_checkpointing=again, tied_head=True, start="random", **changes)
        o = replace(o, context=2048)
        said = GPUS[name].peak * share(GPUS[name], width) / flops(o, 50_368)
        figures = f"{published:,} | {said:,.0f} | {said / published:.2f}"
        yield f"| {n} x {name} | {width:,} x {layers} | {figures} |"


def several(text: str) -> list[float]:
    """Numbers, with commas."""
    return [float(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parameters", type=several, default=[], help="of the model: 7e9, or 1e9,7e9")
    parser.add_argument("--gpus", type=several, default=[8, 64, 256], help="numbers of GPUs, with commas")
    parser.add_argument("--gpu", default="h100", choices=tuple(GPUS))
    parser.add_argument("--tokens", type=float, default=0.0, help="default: 20 for each parameter")
    parser.add_argument(
        "--network", type=float, default=0.0, help="of a node, one direction, GB/s; default: the GPU's"
    )
    parser.add_argument("--gpu-hour-price", type=float, default=0.0, help="default: an example, USD")
    parser.add_argument("--characters", type=several, default=[], help="of a corpus to curate")
    parser.add_argument("--workers", type=int, default=16, help="processes that curate and tokenize")
    given = parser.parse_args()
    if not (given.parameters or given.characters):
        parser.error("give --parameters or --characters")
    gpu = replace(GPUS[given.gpu], network=1e9 * given.network or GPUS[given.gpu].network)
    if given.parameters:
        print(
            "| B parameters | GPUs | way | hours | computing | GPU-hours | MWh | cost "
            "| GiB of a GPU / GB of a node |"
        )
        ranks = [int(n) for n in given.gpus]
        print(*training_rows(given.parameters, ranks, gpu, given.tokens, given.gpu_hour_price), sep="\n")
    if given.characters:
        print("| G characters | stage | processes | CPU hours | hours | GB of memory | cost |")
        print(*curation_rows(given.characters, given.workers), sep="\n")


if __name__ == "__main__":
    main()
