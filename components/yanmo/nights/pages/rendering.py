"""The pages of nights: English and Chinese, one file each, nothing loaded from anywhere (common/pages)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from yanmo.common.logs import human_seconds
from yanmo.common.pages import html
from yanmo.nights.changing import Values
from yanmo.nights.night import LINES_OF_A_VERSE, Row, Words
from yanmo.nights.places import page_name, record_name

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


def short_page(record: Values, row: Row, at: str, is_lost: bool) -> str:
    """What stays of an old night's page, at most `short_pages.MOST_BYTES`.

    Args:
        at: when it became short, UTC, ISO 8601.
        is_lost: whether because the whole one was lost.
    """
    when = shown_time(at)
    why = Words(
        f"Made short at {when} by yanmo store gc --keep-pages.",
        f"已于 {when} 由 yanmo store gc --keep-pages 缩短。",
    )
    if is_lost:
        why = Words(
            f"The whole page was lost; this one was made at {when} by yanmo nights rebuild.",
            f"完整的页面已丢失；本页于 {when} 由 yanmo nights rebuild 生成。",
        )
    kept = record_name(str(record["channel"]), str(record["run_id"]))
    return _page(
        "short.html.jinja",
        channel=record["channel"],
        row=row,
        facts=_facts(row, record["stages"].values()),
        words=Words(
            f"{why.en} The store has what is known of the night in {kept}.",
            f"{why.zh}关于该夜的记录见存储中的 {kept}。",
        ),
        serial=int(record["serial"]),
    )


def _facts(row: Row, stages: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What a short page has of a night in figures and names."""
    seconds = row.cost.get("seconds")
    done = [each for each in stages if each["state"] == "done" and each["key"]]
    made = [f"{each['stage']}/{each['key'][:12]}" for each in done]
    found = {
        "run 运行": row.run_id,
        "began 开始于": shown_time(row.began),
        "bits per character 每字比特": "" if row.bits is None else f"{row.bits:.3f}",
        "gain 提升": "" if row.gain is None else html.minus(f"{100 * row.gain:+.2f} %"),
        "took 用时": "" if seconds is None else human_seconds(seconds),
        "failed tries survived 挺过的失败": str(row.survived or ""),
        "outputs 产出": ", ".join(dict.fromkeys(made)),
    }
    return [(name, value) for name, value in found.items() if value]


def _page(template: str, **values: Any) -> str:
    own: dict[str, Callable[..., Any]] = {
        "href": href,
        "verse": verse_lines,
        "utc": shown_time,
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
