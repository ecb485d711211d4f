"""The table of faults, alerts and delays, for the terminal and for the two pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drill.__main__ import Outcome

_BETWEEN = re.compile(r"(?<=<!-- drill -->\n).*?(?=<!-- /drill -->)", re.S)
_HEADS = {
    "en": (
        "fault",
        "alert",
        "severity",
        "what its rule waits for",
        "came after, times / {factor:g}",
        "others",
    ),
    "zh": ("故障", "告警", "级别", "规则所等", "多久后到达（时间除以 {factor:g}）", "其他告警"),
}
_WORDS = {
    "en": {
        "none": "none",
        "never": "it did not come",
        "left": "not tried: {why}",
        "seconds": "{delay:.1f} s",
    },
    "zh": {"none": "无", "never": "没有到达", "left": "未试：{why}", "seconds": "{delay:.1f} 秒"},
}


def tables(outcomes: Sequence[Outcome], factor: float) -> tuple[str, str]:
    """In English and in Chinese."""
    return _table(outcomes, factor, "en"), _table(outcomes, factor, "zh")


def _table(outcomes: Sequence[Outcome], factor: float, language: str) -> str:
    words = _WORDS[language]
    head = [column.format(factor=factor) for column in _HEADS[language]]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for each in outcomes:
        fault = each.fault
        if each.left_out:
            came = words["left"].format(why=each.left_out)
        elif each.delay is None:
            came = words["never"]
        else:
            came = words["seconds"].format(delay=each.delay)
        cells = [
            fault.what if language == "en" else fault.zh,
            f"`{fault.alert}`",
            each.severity,
            fault.waits if language == "en" else fault.waits_zh,
            came,
            ", ".join(f"`{name}`" for name in each.others) or words["none"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_tables(docs: Path, english: str, chinese: str) -> None:
    """Put them between the marks of docs/drill.md and docs/drill.zh.md."""
    for name, table in (("drill.md", english), ("drill.zh.md", chinese)):
        text = (docs / "how-to" / name).read_text(encoding="utf-8")
        assert _BETWEEN.search(text), name
        (docs / "how-to" / name).write_text(
            _BETWEEN.sub(lambda _, made=table: f"\n{made}\n", text), encoding="utf-8"
        )
