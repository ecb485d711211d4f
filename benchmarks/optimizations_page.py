"""Writes docs/optimizations.md and docs/optimizations.zh.md from the results of optimizations.py."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

from bench.declared import Words
from bench.page import NOT_YET, write_both
from optimizations_rows import BASE, ELSEWHERE, ROWS, Row

HEAD: Words = (
    """# Optimizations: what each is worth, measured

[中文](optimizations.zh.md)

Guides list these optimizations with the gains that they claim. Here each was trained with it and
without it, in turn, with {seeds} seeds, as `yanmo train` on the demo's text. The figures hold for
this small model on these two cores; the order of a GPU or of a large model may be another.

- **speed** and **CPU**: tokens a second, and a second of CPU, with it divided by without it; in
  brackets the least and the largest pair. The host's own speed changes within minutes: rows of two
  seeds that were measured again hours later differed by up to 0.2. No speed is shown where the
  machine had more to do than it has cores.
- **memory**: the largest resident memory of one rank, the same way.
- **bits**: bits per character of the validation split after {steps} steps, with it minus without
  it (less is better), ± the interval of 95 % over the seeds.
""",
    """# 优化：每一项值多少，实测

[English](optimizations.md)

各种教程列出这些优化及其宣称的收益。这里每一项都用 `yanmo train` 在 demo 的文字上轮
流训练，一次用、一次不用，{seeds} 个种子。这些数字只适用于这个小模型和这两个核；在
GPU 上或大模型上次序可能不同。

- **速度**和 **CPU**：每秒、每 CPU 秒的词元数，用它时除以不用时；括号里是最小和最大
  的一对。主机自己的速度几分钟内就会变：只有两个种子的行，几小时后再测，最多相差
  0.2。机器上的任务多于它的核时，不显示速度。
- **内存**：单个进程最大的常驻内存，同样相除。
- **比特**：{steps} 步之后验证集的每字比特数，用它时减去不用时（越小越好），± 为各种子的 95 % 区间。
""",
)
TABLE: Words = (
    "| what | options | speed | CPU | memory | bits | claimed | when not |\n" + "|---" * 8 + "|",
    "| 优化 | 选项 | 速度 | CPU | 内存 | 比特 | 他人所称 | 何时不用 |\n" + "|---" * 8 + "|",
)
TABLE_ELSEWHERE: Words = (
    "\n## What else guides list\n\n| what | option | |\n|---|---|---|",
    "\n## 教程还列出的\n\n| 优化 | 选项 | |\n|---|---|---|",
)
BESIDE: Words = ("beside", "对照")
OR: Words = (" or ", " 或 ")
FOOT: Words = (
    """## How it was measured

    python benchmarks/optimizations.py --store runs/demo --channel demo
    python benchmarks/optimizations.py --store runs/demo --channel demo --only NAME --again

{where}

Load at most {load}. Options of both sides:

{base}""",
    """## 如何测量

    python benchmarks/optimizations.py --store runs/demo --channel demo
    python benchmarks/optimizations.py --store runs/demo --channel demo --only NAME --again

{where}

负载至多 {load}。两边共同的选项：

{base}""",
)


def write_pages(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Write both pages; rows without a result are named below the table."""
    write_both("optimizations", lambda language: page(results, language))


def page(results: Mapping[str, Mapping[str, Any]], language: int) -> str:
    """One page.

    Args:
        language: 0 is English, 1 Chinese.
    """
    measured = [row for row in ROWS if row.name in results]
    seeds = OR[language].join(sorted({str(len(results[row.name]["sides"]["on"])) for row in measured}))
    steps = " / ".join(sorted({str(results[row.name]["steps"]) for row in measured}))
    parts = [HEAD[language].format(seeds=seeds, steps=steps), TABLE[language]]
    parts += [line(row, results[row.name], language) for row in measured]
    missing = ", ".join(f"`{row.name}`" for row in ROWS if row.name not in results)
    if missing:
        parts.append("\n" + NOT_YET[language].format(names=missing))
    parts.append(TABLE_ELSEWHERE[language])
    for other in ELSEWHERE:
        option = f"`{other.option}`" if other.option else ""
        parts.append(f"| {other.title[language]} | {option} | {other.where[language]} |")
    machines = {
        f"{one['cpus']} x {one['made_by']['processor']}, torch {one['made_by']['torch']}, "
        f"{one['made_by']['yanmo']}"
        for one in results.values()
    }
    load = max((one["load"] for one in results.values()), default=0)
    base = "\n".join(
        f"    {options}" for options in textwrap.wrap(" ".join(BASE), 90, break_on_hyphens=False)
    )
    foot = FOOT[language].format(
        where="\n".join(f"- {machine}" for machine in sorted(machines)), load=load, base=base
    )
    return "\n".join([*parts, "", foot, ""])


def line(row: Row, found: Mapping[str, Any], language: int) -> str:
    """A row of the table."""
    options = " ".join(f"`{option}`" for option in row.on)
    if row.off:
        options += f" {BESIDE[language]} " + " ".join(f"`{option}`" for option in row.off)
    is_quiet = found["load"] <= found["cpus"]
    ratios = (
        shown_ratio(found[figure]) if is_quiet or figure != "speed" else ""
        for figure in ("speed", "cpu", "memory")
    )
    cells = (row.title[language], options, *ratios, shown_bits(found["bits"]), row.claim[language])
    return f"| {' | '.join(cells)} | {row.avoid[language]} |"


def shown_ratio(found: Mapping[str, float]) -> str:
    """The median, and the least and the largest pair."""
    return f"{found['median']:.2f} ({found['least']:.2f} to {found['largest']:.2f})"


def shown_bits(found: Mapping[str, float]) -> str:
    """The difference and its interval."""
    half = "" if math.isnan(found["half"]) else f" ± {found['half']:.3f}"
    return f"{found['mean']:+.3f}{half}"
