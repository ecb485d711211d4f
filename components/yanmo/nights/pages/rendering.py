"""The page of a channel's runs: English and Chinese, one file, nothing loaded (common/pages)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from yanmo.common.pages import html
from yanmo.nights.night import LINES_OF_A_VERSE, Row, Words

_TEMPLATE = Path(__file__).with_name("index.html.jinja")
_MARKS = {
    "begun": ("", "作", Words("going on", "进行中")),
    "promoted": ("yes", "准", Words("promoted", "晋升")),
    "not promoted": ("no", "留", Words("not promoted", "未晋升")),
    "not valid": ("bad", "废", Words("not valid", "无效")),
    "held": ("held", "候", Words("won, and waits for a person", "胜出，待人决定")),
    "nothing new": ("no", "静", Words("nothing new", "无新数据")),
    "paused": ("held", "歇", Words("paused", "已暂停")),
    "failed": ("bad", "败", Words("failed", "失败")),
    "given up": ("bad", "弃", Words("given up", "已放弃")),
}
"""State -> style of its seal, what stands in it, in words."""


def render_index(channel: str, rows: Sequence[Row], serial: int) -> str:
    """The newest runs of a channel."""
    own = {"verse": verse_lines, "utc": shown_time}
    return html.render(_TEMPLATE, own, channel=channel, rows=rows, serial=serial, marks=_MARKS)


def verse_lines(text: str) -> list[str]:
    """The lines of a verse, as many as are shown."""
    return [line for line in text.split("\n") if line.strip()][:LINES_OF_A_VERSE]


def shown_time(when: str) -> str:
    """A time as a person reads it."""
    return when.replace("T", " ").removesuffix("+00:00") + " UTC"
