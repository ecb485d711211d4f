"""Published trainings beside what benchmarks/scale.py predicts for them.

The predictions take `PAPER`: ZeRO as its paper says, all of it sent while it computes, in the options that a
source names. Two rows for each GPU fit the share of the peak that it reaches; the others are held out. The
sources' decoders with two matrices of a feed-forward 4 times as wide stand here as three of 8/3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from scale_machine import MACHINES, Machine
from scale_model import PAPER, predict

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig

FOUNDRY = "mosaicml/llm-foundry, scripts/train/benchmarking/README.md at 061f2c7"
TITAN = "pytorch/torchtitan, docs/performance.md at 0413364"
LLAMA2 = "arXiv 2307.09288, table 2"
LLAMA3 = "meta-llama/llama3, MODEL_CARD.md at 13e795f"
TINYLLAMA = "jzhang38/TinyLlama, README"
BLOOM = "arXiv 2211.05100"


FITTED = {("125m", "a100"), ("7b", "a100"), ("760m", "h100"), ("30b", "h100")}


@dataclass(frozen=True)
class Published:
    """A training and what its source says of it."""

    name: str
    machine: str
    gpus: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocab_size: int
    context: int
    rows: int
    """Of the whole batch."""
    micro_rows: int
    again: bool
    """Whether activations are computed again."""
    source: str
    tokens_per_second: float = 0.0
    """Of one GPU; 0 where the source says hours."""
    gpu_hours: float = 0.0
    tokens: float = 0.0
    """That these hours trained on."""
    is_fitted: bool = False
    tied: bool = False
    is_whole: bool = False
    """Whether the figure is of a whole training, with all that stood still, and not of a benchmark."""

    def options(self) -> TrainConfig:
        """As `yanmo train` would be asked for it."""
        flags = {
            "layers": self.layers,
            "width": self.width,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_width": self.width // self.heads,
            "feed_forward": self.feed_forward,
            "context": self.context,
            "batch_rows": self.rows,
            "micro_batch": self.micro_rows,
            "ranks": self.gpus,
            "gradient_checkpointing": self.again,
            "zero_stage": 3,
            "optimizer": "adamw",
            "precision": "bf16",
            "device": "cuda",
            "attention": "varlen",
            "backend": "deepspeed",
            "start": "random",
            "tied_head": self.tied,
            "frequent_tokens": 0,
        }
        return load(TrainConfig, [f"--{n.replace('_', '-')}={v}" for n, v in flags.items()], "scale")

    @property
    def published(self) -> float:
        """Tokens per second and GPU."""
        return self.tokens_per_second or self.tokens / self.gpu_hours / 3600

    def predicted(self, machine: Machine | None = None) -> float:
        """Tokens per second and GPU."""
        step = predict(self.options(), self.vocab_size, machine or MACHINES[self.machine], PAPER)
        return step.tokens / step.seconds / self.gpus


def _mpt(name: str, machine: str, gpus: int, rows: int, micro: int, again: bool, speed: float) -> Published:
    layers, width, heads = {
        "125m": (12, 768, 12),
        "760m": (24, 1536, 12),
        "1b": (24, 2048, 16),
        "3b": (32, 2560, 20),
        "7b": (32, 4096, 32),
        "13b": (40, 5120, 40),
        "30b": (48, 7168, 56),
        "70b": (80, 8192, 64),
    }[name]
    return Published(
        name=f"MPT {name}",
        machine=machine,
        gpus=gpus,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=heads,
        feed_forward=round(8 * width / 3),
        vocab_size=50_368,
        context=2048,
        rows=rows,
        micro_rows=micro,
        again=again,
        source=FOUNDRY,
        tokens_per_second=speed,
        tied=True,
        is_fitted=(name, machine) in FITTED,
    )


def _llama(name: str, machine: str, gpus: int, hours: float) -> Published:
    shape = {
        "Llama 2 7B": (32, 4096, 32, 32, 11_008),
        "Llama 2 13B": (40, 5120, 40, 40, 13_824),
        "Llama 2 70B": (80, 8192, 64, 8, 28_672),
        "Llama 3 8B": (32, 4096, 32, 8, 14_336),
        "Llama 3 70B": (80, 8192, 64, 8, 28_672),
    }[name]
    is_3 = "Llama 3" in name
    rows = (4 if not is_3 else 8) * 2**20 // (8192 if is_3 else 4096)
    return Published(
        name,
        machine,
        gpus,
        *shape,
        vocab_size=128_256 if is_3 else 32_000,
        context=8192 if is_3 else 4096,
        rows=rows,
        micro_rows=1,
        again="70B" in name,
        source=LLAMA3 if is_3 else LLAMA2,
        gpu_hours=hours,
        tokens=15e12 if is_3 else 2e12,
        is_whole=True,
    )


RUNS = (
    _mpt("1b", "a100", 8, 448, 14, False, 20_513),
    _mpt("1b", "h100", 8, 112, 14, False, 45_455),
    _mpt("125m", "a100", 8, 640, 40, False, 142_830),
    _mpt("760m", "a100", 8, 384, 24, False, 32_434),
    _mpt("3b", "a100", 8, 160, 10, False, 10_811),
    _mpt("7b", "a100", 8, 96, 6, False, 4_641),
    _mpt("13b", "a100", 8, 48, 2, False, 2_262),
    _mpt("30b", "a100", 8, 504, 3, True, 916),
    _mpt("70b", "a100", 64, 2048, 8, True, 410),
    _mpt("7b", "a100-40gb", 128, 2304, 18, True, 3_623),
    _mpt("70b", "a100-40gb", 128, 512, 4, True, 376),
    _mpt("760m", "h100", 32, 768, 24, False, 67_971),
    _mpt("1b", "h100", 64, 1280, 20, False, 44_402),
    _mpt("3b", "h100", 64, 1152, 6, False, 22_525),
    _mpt("7b", "h100", 8, 48, 6, False, 10_643),
    _mpt("13b", "h100", 64, 128, 2, False, 4_800),
    _mpt("30b", "h100", 32, 1344, 14, True, 2_308),
    _mpt("70b", "h100", 64, 2048, 8, True, 1_039),
    Published("Llama 2 13B", "a100", 64, 40, 5120, 40, 40, 13_824, 32_000, 4096, 128, 2, False, TITAN, 2_162),
    Published("Llama 2 70B", "a100", 64, 80, 8192, 64, 8, 28_672, 32_000, 4096, 128, 2, True, TITAN, 353),
    Published("Llama 3 70B", "a100", 64, 80, 8192, 64, 8, 28_672, 128_256, 8192, 64, 1, True, TITAN, 331),
    Published(
        "TinyLlama 1.1B",
        "a100-40gb",
        16,
        22,
        2048,
        32,
        4,
        5_632,
        32_000,
        2048,
        1024,
        8,
        False,
        TINYLLAMA,
        24_000,
    ),
    Published(
        name="Pythia 1.0B",
        machine="a100-40gb",
        gpus=64,
        layers=16,
        width=2048,
        heads=8,
        kv_heads=8,
        feed_forward=round(8 * 2048 / 3),
        vocab_size=50_304,
        context=2048,
        rows=1024,
        micro_rows=16,
        again=False,
        source=f"arXiv 2304.01373, as {TINYLLAMA} quotes it",
        gpu_hours=4_830,
        tokens=3e11,
        is_whole=True,
    ),
    _llama("Llama 2 7B", "a100", 1024, 184_320),
    _llama("Llama 2 13B", "a100", 1024, 368_640),
    _llama("Llama 2 70B", "a100", 1024, 1_720_320),
    Published(
        name="BLOOM 176B",
        machine="a100",
        gpus=384,
        layers=70,
        width=14_336,
        heads=112,
        kv_heads=112,
        feed_forward=round(8 * 14_336 / 3),
        vocab_size=250_680,
        context=2048,
        rows=2304,
        micro_rows=2,
        again=True,
        source=BLOOM,
        gpu_hours=1_082_990,
        tokens=3.66e11,
        tied=True,
        is_whole=True,
    ),
    _llama("Llama 3 8B", "h100", 1024, 1.3e6),
    _llama("Llama 3 70B", "h100", 1024, 6.4e6),
)


def fit() -> dict[str, tuple[float, float]]:
    """Machine -> full share and half width with which its two fitted rows come out as they were published."""
    found = {}
    for name in sorted({run.machine for run in RUNS if run.is_fitted}):
        rows = [run for run in RUNS if run.is_fitted and run.machine == name]
        shares = [(run.width, _share(run)) for run in rows]
        (w, s), (v, t) = sorted(shares)
        half = (t - s) / (s / w - t / v)  # s = full w / (w + half), and so for t and v
        found[name] = (s * (w + half) / w, half)
    return found


def _share(run: Published) -> float:
    """The share of the peak with which a row comes out, by halving."""
    low, high = 0.05, 0.95
    for _ in range(40):
        middle = (low + high) / 2
        tried = replace(MACHINES[run.machine], full_share=middle, half_width=0.0)
        low, high = (middle, high) if run.predicted(tried) < run.published else (low, middle)
    return low


def ratios(runs: tuple[Published, ...] = RUNS) -> Iterator[tuple[Published, float]]:
    """Each run, and what is predicted for it divided by what was published: above 1 is too fast."""
    for run in runs:
        yield run, run.predicted() / run.published
