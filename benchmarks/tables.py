"""The tables of docs/reference/measurements.md that come from benchmarks/results/, in English and Chinese.

docs/measurements.py puts them into the pages. A function takes the language, 0 for English and 1 for Chinese,
and returns Markdown.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.declared import NAMES, OURS, Benchmark, Words, benchmark
from bench.intervals import ratio
from optimizations_rows import ROWS, Row

RESULTS = Path(__file__).parent / "results"
GENRES = ("诗", "词", "文", "赋")


def result(name: str) -> Any:
    """Return what benchmarks/results/NAME holds."""
    text = (RESULTS / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if name.endswith(".jsonl") else json.loads(text)


def table(head: str, rows: Iterator[str] | list[str], numbers: int = 0) -> str:
    """Return a table; its last columns, as many as `numbers`, are those of figures."""
    columns = head.count("|") - 1
    return "\n".join([head, "|" + "---|" * (columns - numbers) + "---:|" * numbers, *rows])


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def made(by: Mapping[str, str], cpus: int, language: int) -> str:
    """Return the machine and the commit of a result."""
    return (
        f"{cpus} cores of an {by['processor']}, torch {by['torch']}, commit {by['yanmo'][:8]}",
        f"{by['processor']} 的 {cpus} 个核，torch {by['torch']}，提交 {by['yanmo'][:8]}",
    )[language]


def shown(number: float) -> str:
    """Return three digits that count."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def percent(share: float) -> str:
    return f"{share:.2%}".replace("%", " %")


def wrapped(text: str, indent: int = 0) -> str:
    """Return lines of at most 100 columns; one may break beside a Han character, but not before a mark."""
    chunks = re.findall(r"\s+|[^\s\u2e80-\uffff]+[，。；：、）”]*|[\u2e80-\uffff][，。；：、）”]*", text)
    lines = [""]
    for chunk in chunks:
        if width(lines[-1] + chunk.rstrip()) > 100:
            lines.append(" " * indent)
        lines[-1] += chunk if lines[-1].strip() or not chunk.isspace() else ""
    return "\n".join(line.rstrip() for line in lines)


def width(text: str) -> int:
    return sum(1 + (char >= "\u2e80") for char in text)


COLUMNS: dict[str, Words] = {
    "challenger": ("the demo's model, 4.3 M parameters", "演示模型，430 万参数"),
    "with_tag": ("the same model, with genre tag", "同一模型，带体裁标签"),
    "mixture": ("mixture of 5-grams, with genre tag", "5-gram 混合，带体裁标签"),
    "ngram": ("5-gram, modified Kneser-Ney", "5-gram，修正 Kneser-Ney"),
    "ppmd": ("PPMd, order 6, primed with the training text", "PPMd，6 阶，先读训练文本"),
    "xz": ("`xz -9e`, primed with the training text", "`xz -9e`，先读训练文本"),
}


def bits(language: int, columns: Sequence[str] = tuple(COLUMNS)) -> str:
    """Return the demo's bits per character beside the baselines."""
    report = result("demo.json")
    found = {column["id"]: column for column in report["bits_per_character"]["columns"]}
    rows = []
    for name in columns:
        cells = [*(found[name]["rows"][genre] for genre in GENRES), found[name]["mean"]]
        mark = "**" if name == "challenger" else ""
        rows.append(row(COLUMNS[name][language], *(f"{mark}{cell['value']:.3f}{mark}" for cell in cells)))
        if name == "challenger":
            between = ("{:.3f}-{:.3f}".format(*cell["interval"]) for cell in cells)
            rows.append(row(("95 % interval", "95 % 区间")[language], *between))
    training, total = report["training"], report["cost"]["total"]
    texts = sum(genre["documents"] for genre in report["bits_per_character"]["documents"].values())
    by = made(training["made_by"], report["cpus"], language)
    said = (
        f"`make demo`, {training['steps']} steps, {texts:,} held-out texts: {total['cpu_seconds']:.0f} CPU "
        f"seconds on {by}, {report['at'][:10]}.",
        f"`make demo`，{training['steps']} 步，{texts:,} 篇留出文本：{total['cpu_seconds']:.0f} CPU 秒，"
        f"{by}，{report['at'][:10]}。",
    )
    shown_table = table(row("", *GENRES, ("mean", "平均")[language]), rows, numbers=5)
    return f"{shown_table}\n\n{wrapped(said[language])}"


FASTER = (
    ("training", "transformers", "a training step", "一步训练的速度", "transformers"),
    (
        "evaluation",
        "lm-evaluation-harness, batch 16",
        "an evaluation in batches of 16",
        "以 16 篇为批评测的速度",
        "lm-evaluation-harness",
    ),
    ("curation", "datatrove", "curation", "整理的速度", "datatrove"),
    ("tokens", "jieba", "segmentation", "分词的速度", "jieba"),
    ("generation", "transformers", "writing", "写作的速度", "transformers"),
)
"""Benchmark, its contestant, what is done in English and Chinese, and beside whom."""


def summary(language: int) -> str:
    """Return what is asked first; the sections below have each with its command."""
    demo, lines = result("demo.json"), result("resume_kills.jsonl")
    means = {one["id"]: one["mean"]["value"] for one in demo["bits_per_character"]["columns"]}
    kills = sum("kill" in line for line in lines)
    bits = "bits per character of the demo's model; of 5-grams", "演示模型的每字比特数；5-gram 的"
    cost = "memory of its training; disk of its store", "训练它的内存；存储占的磁盘"
    resumed = (
        f"of {kills} kills with -9, those after which a loss, a sample or the model differed",
        f"kill -9 共 {kills} 次，损失、样本或模型因此不同的次数",
    )
    found = [
        (bits, f"{means['challenger']:.3f}; {means['ngram']:.3f}"),
        (cost, f"{demo['memory_peak_bytes'] / 1e9:.2f} GB; {demo['store_bytes'] / 1e6:.0f} MB"),
        *(
            ((f"{en}: times as fast as {peer}", f"{zh}是 {peer} 的几倍"), beside(name, who, language))
            for name, who, en, zh, peer in FASTER
        ),
        (resumed, str(sum(bool(line["differing"]) for line in lines))),
    ]
    head = row("what", "figure"), row("测什么", "数字")
    return table(head[language], [row(words[language], said) for words, said in found], numbers=1)


def beside(name: str, who: str, language: int) -> str:
    """Return how many times as good ours is beside a contestant, least and most of its groups."""
    one, found = benchmark(name), []
    for group in result(f"{name}.json")["groups"]:
        figures = group["figures"]
        ours = next(figures[called] for called in figures if called.startswith(OURS))
        theirs = next(figures[called] for called in figures if called.startswith(who))
        found.append(ratio(ours, theirs, one.more_is_better).median)
    low, high = shown(min(found)), shown(max(found))
    return low if low == high else (f"{low} to {high}", f"{low} 至 {high}")[language]


def cost(language: int) -> str:
    """Return what each stage of the demo took."""
    found = result("demo.json")
    stages = found["cost"]["stages"]
    rows = [row(f"`{one['stage']}`", f"{one['cpu_seconds']:.0f}") for one in stages]
    memory, disk = found["memory_peak_bytes"] / 1e9, found["store_bytes"] / 1e6
    said = (
        f"Memory of the training, at most: {memory:.2f} GB. The whole store afterwards: {disk:.0f} MB.",
        f"训练最多用内存 {memory:.2f} GB。结束后整个存储：{disk:.0f} MB。",
    )
    head = row("stage", "CPU seconds"), row("阶段", "CPU 秒")
    return "\n\n".join([table(head[language], rows, numbers=1), said[language]])


def beside_others(language: int) -> str:
    """Return ours beside what does the same: all benchmarks in one table, then how each was made."""
    head = (
        row("what, in which unit", "Yanmo", "beside", "its figure", "ratio"),
        row("测什么，单位", "研墨", "对照", "它的数字", "之比"),
    )
    ones = [(benchmark(name), result(f"{name}.json")) for name in NAMES]
    rows = [line for one, found in ones for line in contestants(one, found, language)]
    notes = [
        f"- **{one.title[language]}**{(' (', '（')[language]}`make bench ONLY={one.name}`"
        f"{(', ', '，')[language]}{found['rounds']} {('rounds, ', '轮，')[language]}"
        f"{made(found['made_by'], found['cpus'], language)}{(')', '）')[language]}"
        f"{(': ', '：')[language]}{one.about[language]}"
        for one, found in ones
    ]
    return "\n\n".join([table(head[language], rows), "\n".join(wrapped(note, 2) for note in notes)])


def contestants(one: Benchmark, found: Mapping[str, Any], language: int) -> Iterator[str]:
    """Yield a line for each contestant that is not the first of ours."""
    for group in found["groups"]:
        figures = group["figures"]
        ours = next(name for name in figures if name.startswith(OURS))
        title = group["title"] if len(found["groups"]) > 1 else one.title
        first = [f"{title[language]}{(', ', '，')[language]}{one.unit[language]}"]
        first.append(shown(statistics.median(figures[ours])))
        for name in figures:
            if name != ours:
                called = one.in_chinese.get(name, name) if language else name
                theirs = shown(statistics.median(figures[name]))
                yield row(*first, called, theirs, times(figures[ours], figures[name], one, language))
                first = ["", ""]


def times(ours: list[float], theirs: list[float], one: Benchmark, language: int) -> str:
    """Return how many times as good ours is, with the interval."""
    found = ratio(ours, theirs, one.more_is_better)
    middle, low, high = map(shown, (found.median, found.low, found.high))
    return (f"{middle} ({low} to {high})", f"{middle}（{low} 到 {high}）")[language]


def optimizations(language: int) -> str:
    """Return what each optimization changes."""
    head = (
        row("what", "options", "speed", "memory", "bits", "when not"),
        row("优化", "选项", "速度", "内存", "比特", "何时不用"),
    )
    found = result("optimizations.json")
    return table(head[language], [optimization(one, found[one.name], language) for one in ROWS])


def optimization(one: Row, found: Mapping[str, Any], language: int) -> str:
    """Return a line; no speed where the machine had more to do than it has cores."""
    on = [*one.on, f"--steps={one.longer * found['steps']}"] if one.longer > 1 else one.on
    options = f"`{' '.join(on)}`"
    speed = spread(found["speed"], language) if found["load"] <= found["cpus"] else ""
    title = (f"{one.title[0]} (`{one.name}`)", f"{one.title[1]}（`{one.name}`）")[language]
    memory = f"{found['memory']['median']:.2f}"
    return row(title, options, speed, memory, difference(found["bits"]), one.avoid[language])


def spread(found: Mapping[str, float], language: int) -> str:
    """Return the median, the least and the largest of the pairs."""
    middle, low, high = (f"{found[name]:.2f}" for name in ("median", "least", "largest"))
    return (f"{middle} ({low} to {high})", f"{middle}（{low} 到 {high}）")[language]


def difference(found: Mapping[str, float]) -> str:
    """Return a difference with its interval; one pair has none."""
    half = "" if math.isnan(found["half"]) else f" ± {found['half']:.3f}"
    return f"{found['mean']:+.3f}{half}"


PACKINGS: dict[str, Words] = {
    "best-fit": ("`best-fit`", "`best-fit`"),
    "concat": ("`concat`", "`concat`"),
    "one": ("`one`, padded to the context", "`one`，填充到上下文"),
}


def packing(language: int) -> str:
    head = (
        row("`--packing`", "context", "padding", "documents cut", "of them fit a row"),
        row("`--packing`", "上下文", "填充", "被切断的文档", "其中本可放入一行"),
    )
    found = result("demo.json")["packing"]
    rows = [
        row(
            PACKINGS[plan["packing"]][language],
            f"{plan['context']:,}",
            percent(plan["padding_share"]),
            percent(plan["documents_cut"] / found["documents"]),
            f"{plan['short_documents_cut']:,}",
        )
        for plan in found["plans"]
    ]
    return table(head[language], rows, numbers=4)


def resume(language: int) -> str:
    """Return how many kills changed something, by what was trained."""
    head = (
        row("ranks", "ZeRO", "precision", "optimizer", "kills", "inside a save", "differing"),
        row("rank 数", "ZeRO", "精度", "优化器", "杀死次数", "正在保存时", "不同"),
    )
    groups: dict[tuple[str, ...], list[Any]] = {}
    for line in result("resume_kills.jsonl"):
        key = tuple(str(line[name]) for name in ("ranks", "zero_stage", "precision", "optimizer"))
        groups.setdefault(key, []).append(line)
    rows = []
    for key, lines in groups.items():
        kills = [line for line in lines if "kill" in line]
        saving = sum(line["inside_save"] for line in kills)
        rows.append(row(*key, *map(str, (len(kills), saving, sum(len(line["differing"]) for line in lines)))))
    return table(head[language], rows, numbers=3)


def gpu(language: int) -> str:
    """Return how much of the card's peak a step reaches, and how many checks passed."""
    found = result("gpu.json")
    last = found["speed"][-1]
    measures = [one for part in found["checks"].values() for one in part]
    passed = sum(one["status"] == "pass" for one in measures)
    card = found["card"].split(",")[0]
    share = {name: f"{one['mfu_percent']} %" for name, one in last["found"].items()}
    words = (
        f"{card}, torch {found['torch']}, {found['date']}: {passed} of {len(measures)} "
        f"measures passed. A step of `small` with 128 rows of 512 in bf16 reaches {share['torch']} of the "
        f"card's peak, torchtitan's {share['torchtitan']}.",
        f"{card}，torch {found['torch']}，{found['date']}：{len(measures)} 项通过 {passed} 项。"
        f"`small` 每步 128 行、每行 512，bf16，达到这块卡峰值的 {share['torch']}，"
        f"torchtitan 是 {share['torchtitan']}。",
    )
    return wrapped(words[language])
