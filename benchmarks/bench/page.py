"""Writes docs/reference/benchmarks.md and docs/reference/benchmarks.zh.md from benchmarks/results/."""

from __future__ import annotations

import itertools
import re
import statistics
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.declared import NAMES, OURS, Benchmark, Words, benchmark
from bench.intervals import ratio

_MOST_COLUMNS = (100, 80)
"""Of a line, by language: Han take two columns and three bytes."""
_CLOSING = "，。；：、）”"
DOCS = Path(__file__).parents[2] / "docs/reference"
HEAD: Words = (
    """# Benchmarks: beside others that do the same

[中文](benchmarks.zh.md)

    make bench                           # all of them, about {minutes} minutes on two free cores
    make bench ONLY=tokens,generation    # some

Each installs what it is compared with by itself (`.bench/`; that wants a network). The contestants
take turns in one run, so that a busy machine slows both; one round warms up and is not counted.
Given are the median of each, and how many times as good the first row is: the median of the ratios
of the same rounds, and the interval that holds the true median with 95 %. This page is written by
the command, from `benchmarks/results/`.
""",
    """# 基准：与做同样事情的其他工具相比

[English](benchmarks.md)

    make bench                           # 全部，两个空闲的核上约 {minutes} 分钟
    make bench ONLY=tokens,generation    # 其中几个

每个基准自己安装它的对照（`.bench/`，需要网络）。各方在同一次运行中轮流进行，机器忙时双方一样变慢；
第一轮只用来预热，不计入。表中是各方的中位数，以及第一行是它的几倍：同一轮之比的中位数，和以 95 % 的
概率包含真实中位数的区间。本页由此命令根据 `benchmarks/results/` 写成。
""",
)
COLUMNS: Words = (
    "| | {unit} | the first is |\n|---|---:|---|",
    "| | {unit} | 第一行是它的 |\n|---|---:|---|",
)
TIMES: Words = ("{median} times ({low} to {high}{few})", "{median} 倍（{low} 到 {high}{few}）")
FEW: Words = (", with {share} %", "，{share} %")
MADE: Words = (
    "`make bench ONLY={name}`, {rounds} rounds, {cpus} cores, {processor}, torch {torch}, commit {yanmo}, "
    "load {load}{packages}.",
    "`make bench ONLY={name}`，{rounds} 轮，{cpus} 核，{processor}，torch {torch}，提交 {yanmo}，负载 "
    "{load}{packages}。",
)
NOT_YET: Words = ("Not measured yet: {names}.", "尚未测量：{names}。")


def write_pages(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Write both pages; benchmarks without a result are named at the end."""
    write_both("benchmarks", lambda language: page(results, language))


def write_both(stem: str, page: Callable[[int], str]) -> None:
    """Write a page of docs/ in both languages.

    Args:
        page: its text by language: 0 is English, 1 Chinese.
    """
    for language, name in enumerate((f"{stem}.md", f"{stem}.zh.md")):
        (DOCS / name).write_text(page(language), encoding="utf-8")


def page(results: Mapping[str, Mapping[str, Any]], language: int) -> str:
    """One page.

    Args:
        language: 0 is English, 1 Chinese.
    """
    all_of_them = [benchmark(name) for name in NAMES]
    parts = [HEAD[language].format(minutes=sum(one.minutes for one in all_of_them))]
    for one in all_of_them:
        if one.name in results:
            parts.append(section(one, results[one.name], language))
    missing = [f"`{name}`" for name in NAMES if name not in results]
    if missing:
        parts.append(NOT_YET[language].format(names=", ".join(missing)) + "\n")
    return "\n".join(parts)


def section(one: Benchmark, found: Mapping[str, Any], language: int) -> str:
    """A benchmark's tables."""
    parts = [f"## {one.title[language]}\n", wrapped(one.about[language], language) + "\n"]
    for group in found["groups"]:
        if len(found["groups"]) > 1:
            parts.append(f"**{group['title'][language]}**\n")
        parts += [COLUMNS[language].format(unit=one.unit[language])]
        ours = next(name for name in group["figures"] if name.startswith(OURS))
        for name, figures in group["figures"].items():
            cell = (
                "" if name == ours else times(group["figures"][ours], figures, one.more_is_better, language)
            )
            called = one.in_chinese.get(name, name) if language else name
            parts.append(f"| {called} | {shown(statistics.median(figures))} | {cell} |")
        parts.append("")
    load = max(max(group["load"]) for group in found["groups"])
    packages = ("; ", "；")[language] + ", ".join(found["packages"]) if found["packages"] else ""
    made = MADE[language].format(
        name=one.name,
        rounds=found["rounds"],
        cpus=found["cpus"],
        load=load,
        packages=packages,
        **found["made_by"],
    )
    return "\n".join([*parts, wrapped(made, language), ""])


def times(ours: list[float], theirs: list[float], more_is_better: bool, language: int) -> str:
    """How many times as good ours is, with the interval."""
    found = ratio(ours, theirs, more_is_better)
    few = "" if found.coverage >= 0.95 else FEW[language].format(share=round(100 * found.coverage))
    numbers = {name: shown(getattr(found, name)) for name in ("median", "low", "high")}
    return TIMES[language].format(few=few, **numbers)


def shown(number: float) -> str:
    """Three digits that count."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def wrapped(text: str, language: int, indent: str = "") -> str:
    """Lines that are no longer than allowed; one may break beside a Han character, but not before a mark.

    Args:
        indent: before each line but the first.
    """
    units = re.findall(r"\s+|[^\s\u2e80-\uffff]+|[\u2e80-\uffff]", text)
    chunks = [units[0]]
    for before, unit in itertools.pairwise(units):
        is_han = max(_columns(before) - len(before), _columns(unit) - len(unit)) > 0
        torn = is_han and unit not in _CLOSING
        if unit.isspace() or before.isspace() or torn:
            chunks.append(unit)
        else:
            chunks[-1] += unit
    lines = [""]
    for chunk in chunks:
        if _columns(lines[-1] + chunk) > _MOST_COLUMNS[language] and not chunk.isspace():
            lines.append(indent)
        lines[-1] += chunk if lines[-1] or not chunk.isspace() else ""
    return "\n".join(line.rstrip() for line in lines)


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
