"""The table of nights, for the two pages: plan and outcome, one row each."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

from nights.record import Outcome, Record
from nights.scorer import allowed

_BETWEEN = re.compile(r"(?<=<!-- nights -->\n).*?(?=<!-- /nights -->)", re.S)
PAGES = {"en": "thirty-nights.md", "zh": "thirty-nights.zh.md"}
_HEAD = {
    "en": (
        "night", "data", "fault", "seconds", "runs", "verdict", "champion", "bits on fresh texts",
        "added, kB (predicted)", "found",
    ),
    "zh": (
        "夜", "数据", "故障", "秒", "运行次数", "判定", "冠军", "未见文本上的比特", "增加，kB（预计）",
        "发现",
    ),
}  # fmt: skip
_DATA = {
    "grow": ("grow", "增加"), "shrink": ("shrink", "减少"), "same": ("as before", "不变"),
    "copy": ("a copy of the evaluation set", "评测集的副本"), "mojibake": ("mojibake", "乱码"),
    "empty": ("an empty file", "空文件"),
}  # fmt: skip
_FAULT = {
    "quiet": ("none", "无"),
    "pod": ("pod deleted by force in {stage}", "{stage} 的 pod 被强制删除"),
    "kubelet": ("kubelet stopped for 20 s in {stage}", "{stage} 中 kubelet 停 20 秒"),
    "api": ("API server restarted in {stage}", "{stage} 中 API 服务器重启"),
    "store": ("S3 answers 503 for 10 s in {stage}", "{stage} 中 S3 以 503 回答 10 秒"),
    "clock": ("clock {hours} h off in {stage}", "{stage} 的时钟偏差 {hours} 小时"),
    "secret": ("Secret rotated in {stage}", "{stage} 中更换 Secret"),
    "disk": ("scratch disk full in train", "train 的临时盘写满"),
    "lab": ("everything down and up before", "之前全部关闭再启动"),
}
_SPREAD = {
    "en": (
        "The spread of the seed is not measured yet, so new champions are not judged.",
        "By the seed alone two models differ by more than {limit} bits per character on the fresh texts in "
        "one case of a hundred.",
    ),
    "zh": (
        "种子造成的差异尚未测量，所以新冠军未作判断。",
        "仅凭种子，两个模型在未见文本上一百次有一次相差超过每字 {limit} 比特。",
    ),
}
"""Whether the spread is known -> sentence."""
_WORDS = {
    "promoted": "晋升", "not promoted": "未晋升", "not valid": "无效", "nothing new": "无新内容",
    "LOST": "失去",
    "none": "无",
    "too late": "太迟",
}  # fmt: skip


def table(record: Record, language: str) -> str:
    """Markdown of all nights so far."""
    zh = language == "zh"
    head = _HEAD[language]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(_cells(night, zh))} |" for night in record.nights]
    return "\n".join(lines) + "\n"


def _cells(night: Outcome, zh: bool) -> list[str]:
    def word(text: str) -> str:
        return _WORDS.get(text, text) if zh else text

    fault = _FAULT[night.fault][zh].format(stage=night.stage, hours=f"{night.clock / 3600:+.1f}")
    if night.met:
        fault += f"（{word(night.met)}）" if zh else f" ({night.met})"
    bits = "" if night.fresh_bits is None else f"{night.fresh_bits:.3f}"
    size = f"{night.added_bytes / 1000:,.0f} ({night.predicted_bytes / 1000:,.0f})"
    return [
        str(night.number), _DATA[night.data][zh], fault, f"{night.seconds:.0f}", str(night.runs),
        word(night.verdict or "LOST"), f"`{night.champion[:8]}`", bits,
        size.replace(" (", "（").replace(")", "）") if zh else size,
        word("none") if not night.findings else str(len(night.findings)),
    ]  # fmt: skip


def summary(record: Record, language: str) -> str:
    """What all nights came to, in one paragraph."""
    nights = record.nights
    lost = sum(not night.verdict for night in nights)
    saved = sum(bool(night.verdict) and night.runs > 1 for night in nights)
    new = sum(night.verdict == "promoted" for night in nights)
    middle = statistics.median(night.seconds for night in nights) if nights else 0.0
    added, expected = sum(n.added_bytes for n in nights), sum(n.predicted_bytes for n in nights)
    spread = _SPREAD[language][len(record.seeds_bits) > 3]
    if len(record.seeds_bits) > 3:
        spread = spread.format(limit=f"{allowed(record.seeds_bits):.3f}")
    sittings, commits = len({night.sitting for night in nights}), ", ".join(dict.fromkeys(record.commits))
    findings = len(record.findings)
    if language == "zh":
        said = (
            f"种子 {record.seed}，{len(nights)} 夜，分 {sittings} 次完成"
            f"（提交 {commits}；{record.machine}）。"
            f"失去 {lost} 夜；{saved} 夜由后续运行补回；新冠军 {new} 个；一夜时长中位数 {middle:.0f} 秒；"
            f"存储增加 {added / 1e6:.1f} MB，预计 {expected / 1e6:.1f} MB；发现 {findings} 项。"
            f"{spread}"
        )
    else:
        said = (
            f"Seed: {record.seed}. Nights: {len(nights)}. Sittings: {sittings} (commit {commits}; "
            f"{record.machine}). Nights lost: {lost}. Saved by a further run: {saved}. New champions: {new}. "
            f"Median of a night: {middle:.0f} s. The store grew by {added / 1e6:.1f} MB, "
            f"{expected / 1e6:.1f} MB were predicted. Findings: {findings}. {spread}"
        )
    notes = "".join(f"\n- {wrapped(note[:300])}" for note in (*record.notes, *record.findings))
    return wrapped(said) + "\n" + notes + "\n"


def wrapped(text: str) -> str:
    """Lines of at most 98 columns; a Chinese character has two, and may end a line."""
    lines, width = [""], 0
    for word in re.findall(r"[ -~]+?(?: |$|(?=[^ -~]))|[^ -~]", text):
        columns = sum(1 + (ord(character) > 0x2E7F) for character in word)
        if width + columns > 98 and word not in "，。；：、）":
            lines.append("")
            width = 0
        lines[-1] += word
        width += columns
    return "\n".join(line.rstrip() for line in lines)


def write_tables(docs: Path, record: Record) -> None:
    """Put summary and table between the marks of both pages."""
    for language, name in PAGES.items():
        path = docs / "reference" / name
        page = path.read_text(encoding="utf-8")
        assert _BETWEEN.search(page), name
        made = f"\n{summary(record, language)}\n{table(record, language)}\n"
        path.write_text(_BETWEEN.sub(lambda _, made=made: made, page), encoding="utf-8")
