"""A night in one dated line, for a chat or a feed: English or Chinese."""

from __future__ import annotations

from collections.abc import Callable

from yanmo.common.logs import human_seconds, human_seconds_zh
from yanmo.nights.night import Row, plain

_MOST_OF_A_SENTENCE = 600


def _english(channel: str, row: Row) -> str:
    figures = [f"{row.bits:.3f} bits per character"] if row.bits is not None else []
    figures += _cost(row, human_seconds)
    figures += [f"{row.survived} failed tries survived"] if row.survived else []
    return _joined(f"Yanmo {channel}, night of {row.date}: {row.sentence.en}", figures, " (", ", ", ")")


def _chinese(channel: str, row: Row) -> str:
    figures = [f"每字 {row.bits:.3f} 比特"] if row.bits is not None else []
    figures += _cost(row, human_seconds_zh)
    figures += [f"挺过 {row.survived} 次失败"] if row.survived else []
    return _joined(f"研墨 Yanmo {channel}，{row.date} 夜：{row.sentence.zh}", figures, "（", "，", "）")


LINE_OF: dict[str, Callable[[str, Row], str]] = {"en": _english, "zh": _chinese}


def night_line(channel: str, row: Row, language: str, link: str) -> str:
    """The line, which begins with the word Yanmo or has it near its beginning: a keyword for chat robots.

    Args:
        link: address of the night's page; "" for none.
    """
    line = LINE_OF[language](channel, row)
    return f"{line} {link}" if link else line


def _joined(start: str, figures: list[str], before: str, between: str, after: str) -> str:
    start = plain(" ".join(start.split()), _MOST_OF_A_SENTENCE)
    return start + (before + between.join(figures) + after if figures else "")


def _cost(row: Row, duration: Callable[[float], str]) -> list[str]:
    seconds = row.cost.get("seconds")
    return [duration(seconds)] if seconds else []
