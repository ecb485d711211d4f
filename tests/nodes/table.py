"""The table of faults, for the two pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "twenty.json"
PAGES = {"en": ROOT / "docs/nodes-faults.md", "zh": ROOT / "docs/nodes-faults.zh.md"}
_BETWEEN = re.compile(r"(?<=<!-- faults -->\n).*?(?=<!-- /faults -->)", re.S)
_HEAD = {
    "en": (
        "", "fault", "nodes x ranks", "node", "after step", "exit codes, start by start",
        "steps made again", "longest without a step, s", "seconds", "found",
    ),
    "zh": (
        "", "故障", "节点 x 进程", "节点", "步后", "每次启动的退出码", "重做的步数", "最长无进展，秒", "秒",
        "发现",
    ),
}  # fmt: skip
_KIND = {
    "kill": "强杀一个节点", "kill node 0": "强杀节点 0", "kill a rank": "强杀一个进程",
    "kill in a checkpoint": "写检查点时强杀", "kill node 0 in a checkpoint": "写检查点时强杀节点 0",
    "stop in a checkpoint": "写检查点时 SIGTERM", "cut off": "断网 60 秒",
    "slow network": "网络 700 kB/s，30 秒",
    "slow processor": "处理器十分之一，30 秒", "disk full": "磁盘写满 20 秒", "clock": "时钟偏差 10 分钟",
    "stand still": "停住（SIGSTOP）", "power off": "断电",
}  # fmt: skip
_SHOWN = {
    "kill": "all of a node killed", "kill node 0": "all of node 0 killed", "kill a rank": "a rank killed",
    "kill in a checkpoint": "killed in a checkpoint",
    "kill node 0 in a checkpoint": "node 0 killed in a checkpoint",
    "stop in a checkpoint": "SIGTERM in a checkpoint", "cut off": "cut off for 60 s",
    "slow network": "network at 700 kB/s for 30 s", "slow processor": "a tenth of the processor for 30 s",
    "disk full": "disk full for 20 s", "clock": "clock off by 10 minutes",
    "stand still": "stands still (SIGSTOP)",
    "power off": "loses power",
}  # fmt: skip


def write_tables(record: Mapping[str, Any]) -> None:
    """Put the record's table into both pages."""
    for language, path in PAGES.items():
        text = path.read_text(encoding="utf-8")
        made = table(record, language)
        path.write_text(_BETWEEN.sub(made.replace("\\", r"\\"), text), encoding="utf-8")


def table(record: Mapping[str, Any], language: str) -> str:
    """Markdown: what each case did."""
    head = _HEAD[language]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for outcome in record["cases"]:
        case = outcome["case"]
        kind = case["kind"]
        shown = _SHOWN[kind] if language == "en" else _KIND[kind]
        if case["offset"]:
            shown += f" ({case['offset']:+d} s)"
        if outcome["late"]:
            shown += " (too late)" if language == "en" else "（太迟）"
        ends = "; ".join(" ".join(str(code) for code in start.values()) for start in outcome["ends"])
        none = "nothing" if language == "en" else "无"
        found = "; ".join(finding[:200] for finding in outcome["findings"]).replace("|", "\\|") or none
        cells = (
            *(case["number"], shown, "{} x {}".format(*case["layout"]), case["node"], case["step"]),
            *(ends, outcome["lost"], f"{outcome['still']:.0f}", f"{outcome['seconds']:.0f}", found),
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows) + "\n"
