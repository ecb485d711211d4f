"""Writes docs/reference/optimizations.md and its Chinese twin from the results of optimizations.py."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from bench.declared import Words
from bench.page import NOT_YET, wrapped, write_both
from optimizations_rows import BASE, ROWS, Row

HEAD: Words = (
    """# Optimizations: what each is worth, measured

[中文](optimizations.zh.md)

Guides list these optimizations with the gains that they claim. Here each was trained with it and
without it, in turn, with {seeds} seeds, as `yanmo train` on the demo's text. The figures hold for
this small model on these two cores; the order of a GPU or of a large model may be another.

- **speed** and **CPU**: tokens a second, and tokens a CPU second, with it divided by those without
  it; in brackets the least and the largest pair. The host's own speed changes within minutes: rows
  of two seeds that were measured again hours later differed by up to 0.2. No speed is shown where
  the machine had more to do than it has cores.
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
ELSEWHERE: Words = (
    """
## What else guides list

[Augmentation](../how-to/prepare-text.md#does-augmentation-help) and
[more processes](measurements.md#memory) that tokenize have figures on their own pages. Flash
attention, TF32 and the optimizer in the host's memory (`--offload`) need a GPU: `benchmarks/gpu.sh`
checks that they compute the same ([measurements.md](measurements.md#checking-a-gpu)). Pinned
memory, `--empty-cache-every` and `--allocator` need one too, and were not measured. Yanmo has
neither tensor nor pipeline parallelism ([scale.md](scale.md#limits)).""",
    """
## 教程还列出的

[文本增强](../how-to/prepare-text.zh.md#增广有用吗)和
[多进程分词](measurements.zh.md#内存)的数字在各自的页上。flash attention、TF32、把优化器放在主机内存
（`--offload`）需要 GPU：`benchmarks/gpu.sh` 检查结果是否相同
（[measurements.zh.md](measurements.zh.md#检查-gpu)）。锁页内存、`--empty-cache-every`
与 `--allocator` 也需要 GPU，没有测。研墨没有张量并行与流水线并行
（[scale.zh.md](scale.zh.md#限制)）。""",
)
RATIO: Words = ("{median} ({least} to {largest})", "{median}（{least} 到 {largest}）")
NAMED: Words = ("{title} (`{name}`)", "{title}（`{name}`）")
OF_COMMIT: Words = (
    "- {machine}, commit {commit}: {names}",
    "- {machine}，提交 {commit}：{names}",
)
BETWEEN: Words = (", ", "、")
TIME: Words = (
    "The {count} rows whose result says it took {minutes} minutes together; all 29 of commit\n"
    "e378ae444fd2 took about 51, with two seeds on two cores.",
    "结果中写明用时的 {count} 行共用 {minutes} 分钟；提交 e378ae444fd2 的全部 29 行，两个种子、\n"
    "两个核，共用约 51 分钟。",
)
BESIDE: Words = ("beside", "对照")
OR: Words = (" or ", " 或 ")
FOOT: Words = (
    """## How it was measured

    python benchmarks/optimizations.py --store runs/demo --channel demo --again
    python benchmarks/optimizations.py --store runs/demo --channel demo --only muon packing --again

The first command measures all rows, the second those that it names (in brackets in the table).
Without `--again`, rows that have a result are left out.

{time}

{where}

Load at most {load}. Options of both sides; all else is the default of `--size tiny`:

{base}""",
    """## 如何测量

    python benchmarks/optimizations.py --store runs/demo --channel demo --again
    python benchmarks/optimizations.py --store runs/demo --channel demo --only muon packing --again

第一条命令测量所有的行，第二条只测所点名的（名字在表中的括号里）。没有 `--again`
时，已有结果的行不再测。

{time}

{where}

负载至多 {load}。两边共同的选项，其余都是 `--size tiny` 的默认值：

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
    parts.append(ELSEWHERE[language])
    load = max((one["load"] for one in results.values()), default=0)
    base = "\n".join(
        f"    {options}" for options in textwrap.wrap(" ".join(BASE), 90, break_on_hyphens=False)
    )
    foot = FOOT[language].format(
        time=time_taken(results, language),
        where="\n".join(made(results, language)),
        load=load,
        base=base,
    )
    return "\n".join([*parts, "", foot, ""])


def time_taken(results: Mapping[str, Mapping[str, Any]], language: int) -> str:
    """How long the rows took together, those whose result says it."""
    seconds = [one["seconds"] for one in results.values() if "seconds" in one]
    if not seconds:
        return ""
    return TIME[language].format(count=len(seconds), minutes=round(sum(seconds) / 60))


def made(results: Mapping[str, Mapping[str, Any]], language: int) -> Iterator[str]:
    """Which rows were measured where and at which commit."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in ROWS:
        if row.name in results:
            cpus, by = results[row.name]["cpus"], results[row.name]["made_by"]
            machine = f"{cpus} x {by['processor']}, torch {by['torch']}"
            names.setdefault((machine, by["yanmo"]), []).append(f"`{row.name}`")
    for (machine, commit), rows in sorted(names.items()):
        listed = BETWEEN[language].join(rows)
        text = OF_COMMIT[language].format(machine=machine, commit=commit, names=listed)
        yield wrapped(text, language, indent="  ")


def line(row: Row, found: Mapping[str, Any], language: int) -> str:
    """A row of the table."""
    on, off = row.on, row.off
    if row.longer > 1:
        on = (*on, f"--steps={row.longer * found['steps']}")
        off = (*off, f"--steps={found['steps']}")
    options = " ".join(f"`{option}`" for option in on)
    if off:
        options += f" {BESIDE[language]} " + " ".join(f"`{option}`" for option in off)
    is_quiet = found["load"] <= found["cpus"]
    ratios = (
        shown_ratio(found[figure], language) if is_quiet or figure != "speed" else ""
        for figure in ("speed", "cpu", "memory")
    )
    title = NAMED[language].format(title=row.title[language], name=row.name)
    cells = (title, options, *ratios, shown_bits(found["bits"]), row.claim[language])
    return f"| {' | '.join(cells)} | {row.avoid[language]} |"


def shown_ratio(found: Mapping[str, float], language: int) -> str:
    """The median, and the least and the largest pair."""
    numbers = {name: f"{found[name]:.2f}" for name in ("median", "least", "largest")}
    return RATIO[language].format(**numbers)


def shown_bits(found: Mapping[str, float]) -> str:
    """The difference and its interval."""
    half = "" if math.isnan(found["half"]) else f" ± {found['half']:.3f}"
    return f"{found['mean']:+.3f}{half}"
