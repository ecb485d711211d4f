"""The pages of nights: English and Chinese, one file each, nothing loaded from anywhere (common/pages)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from yanmo.common.pages import html
from yanmo.nights.changing import Values
from yanmo.nights.night import LINES_OF_A_VERSE, Row, Words
from yanmo.nights.paid import paid_by, paid_for, paid_in
from yanmo.nights.places import page_name

_HERE = Path(__file__).parent
_MARKS = {
    "begun": ("", "作", Words("going on", "进行中")),
    "promoted": ("yes", "准", Words("promoted", "晋升")),
    "not promoted": ("no", "留", Words("not promoted", "未晋升")),
    "not valid": ("bad", "废", Words("not valid", "无效")),
    "held": ("held", "候", Words("waits for approval", "待批准")),
    "nothing new": ("no", "静", Words("nothing new", "无新数据")),
    "paused": ("held", "歇", Words("paused", "已暂停")),
    "failed": ("bad", "败", Words("failed", "失败")),
    "given up": ("bad", "弃", Words("given up", "已放弃")),
    "missed": ("bad", "缺", Words("never began", "未曾开始")),
}
"""State -> style of its seal, what stands in it, in words."""
_STAGE_STATES = {
    "working": Words("at work", "进行中"),
    "done": Words("done", "完成"),
    "paused": Words("paused", "已暂停"),
    "failed": Words("failed", "失败"),
    "given up": Words("given up", "已放弃"),
}


def index_page(channel: str, rows: Sequence[Row], months: Mapping[str, Any], serial: int) -> str:
    """The newest nights of a channel, and all its months.

    Args:
        months: month -> {"nights": ..., state: ...}, as the index has them.
    """
    years: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for month in sorted(months, reverse=True):
        years.setdefault(month[:4], []).append((month, months[month]))
    return _page("index.html.jinja", channel=channel, rows=rows, years=years, serial=serial, month="")


def month_page(channel: str, month: str, rows: Sequence[Row], serial: int) -> str:
    """The nights of a month."""
    return _page("index.html.jinja", channel=channel, rows=rows, years={}, serial=serial, month=month)


def channels_page(channels: Sequence[str], serial: int) -> str:
    """The channels that have nights."""
    return _page("channels.html.jinja", channels=channels, serial=serial)


def night_page(record: Values, row: Row) -> str:
    """A night that has no verdict: what its stages did, and why it ended so."""
    return _page(
        "night.html.jinja",
        channel=record["channel"],
        row=row,
        run_id=str(record["run_id"]),
        timezone=str(record["timezone"]),
        stages=list(record["stages"].items())[:40],
        stage_states=_STAGE_STATES,
        serial=int(record["serial"]),
    )


def _page(template: str, **values: Any) -> str:
    own: dict[str, Callable[..., Any]] = {
        "href": href,
        "verse": verse_lines,
        "utc": shown_time,
        "paid_by": paid_by,
        "paid_for": paid_for,
        "paid_in": paid_in,
    }
    return html.render(_HERE / template, own, marks=_MARKS, **values)


def href(row: Row) -> str:
    """Where a page of the same channel finds that of a night."""
    return page_name("channel", row).rpartition("/")[2]


def verse_lines(text: str) -> list[str]:
    """The lines of a verse, as many as are shown."""
    return [line for line in text.split("\n") if line.strip()][:LINES_OF_A_VERSE]


def shown_time(when: str) -> str:
    """A time as a person reads it."""
    return when.replace("T", " ").removesuffix("+00:00") + " UTC"
