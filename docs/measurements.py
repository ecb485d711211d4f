"""Write the tables of docs/reference/measurements.md and README.md, and of their Chinese twins.

    python docs/measurements.py

They stand between `<!-- NAME -->` and `<!-- /NAME -->` and come from benchmarks/results/, which `make bench`,
benchmarks/demo.py, benchmarks/optimizations.py, benchmarks/resume.py and benchmarks/gpu.sh fill, and from the
formulas of benchmarks/scale.py. A test compares the pages with what this writes.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import tables  # noqa: E402
from scale import H100, check_rows, curation_rows, training_rows  # noqa: E402
from tables import percent, row, table, wrapped  # noqa: E402

from yanmo.promote.config import PromoteConfig  # noqa: E402
from yanmo.promote.gate.noise import MEAN_SHARE, Noise, margin  # noqa: E402
from yanmo.promote.gate.verdict import ASSUMED_NOISE, LEAST_NOISE, Rules  # noqa: E402

PAGES = (
    ("README.md", "docs/reference/measurements.md"),
    ("README.zh.md", "docs/reference/measurements.zh.md"),
)
"""English, Chinese."""


def training(language: int) -> str:
    head = (
        "| B parameters | GPUs | way | hours | computing | GPU-hours | MWh | USD | GiB a GPU / GB a node |",
        "| 参数（B） | GPU | 方式 | 小时 | 计算 | GPU 小时 | MWh | 美元 | 每块 GPU GiB / 每节点 GB |",
    )
    return table(head[language], training_rows([1e8, 1e9, 7e9, 7e10], [8, 64, 256], H100), numbers=7)


def curation(language: int) -> str:
    head = (
        "| billion characters | stage | processes | CPU hours | hours | GB of memory | USD |",
        "| 十亿字 | 阶段 | 进程 | CPU 小时 | 小时 | 内存 GB | 美元 |",
    )
    return table(head[language], curation_rows([1e9, 1e10, 1e12], 16), numbers=5)


def published(language: int) -> str:
    """Return how far the predictions are from published speeds."""
    ratios = [float(line.split("|")[-2]) for line in check_rows()]
    words = (
        f"Of {len(ratios)} published trainings on 8 to 64 GPUs (mosaicml/llm-foundry, 061f2c7) the predicted "
        f"speed is {min(ratios):.2f} to {max(ratios):.2f} times the published one.",
        f"与 {len(ratios)} 次公开发表的训练（8 至 64 块 GPU，mosaicml/llm-foundry，061f2c7）相比，"
        f"预测的速度是公布的 {min(ratios):.2f} 至 {max(ratios):.2f} 倍。",
    )
    return wrapped(words[language])


def promotion(language: int) -> str:
    """Return the gains that the gate asks for, as shares of the champion's bits, from its own formula."""
    head = (
        row("s", "one night", "mean of three", "from the champion: one night", "mean of three"),
        row("s", "一夜", "三夜平均", "从冠军继续：一夜", "三夜平均"),
    )
    rows = []
    kinds = (("least", "至少"), ("assumed", "假定"))
    for kind, sd in zip(kinds, (LEAST_NOISE, ASSUMED_NOISE), strict=True):
        cells = []
        for is_warm in (False, True):
            one = margin(
                Noise(sd=sd, df=math.inf, is_warm=is_warm), PromoteConfig.month_error, Rules.nights_per_month
            )
            cells += [percent(one), percent(MEAN_SHARE * one)]
        rows.append(row(f"{percent(sd)} ({kind[language]})", *cells))
    return table(head[language], rows, numbers=4)


BLOCKS = {
    "summary": tables.summary,
    "bits": tables.bits,
    "results": lambda language: tables.bits(language, ("challenger", "mixture", "ppmd", "xz")),
    "cost": tables.cost,
    "benchmarks": tables.beside_others,
    "gpu": tables.gpu,
    "promotion": promotion,
    "optimizations": tables.optimizations,
    "packing": tables.packing,
    "resume": tables.resume,
    "engines": tables.engines,
    "training": training,
    "curation": curation,
    "published": published,
}


def filled(text: str, language: int) -> str:
    """Return a page with its blocks made again."""

    def block(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name} -->\n\n{BLOCKS[name](language)}\n\n<!-- /{name} -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", block, text, flags=re.DOTALL)


if __name__ == "__main__":
    for language, pages in enumerate(PAGES):
        for page in pages:
            path = ROOT / page
            path.write_text(filled(path.read_text(encoding="utf-8"), language), encoding="utf-8")
