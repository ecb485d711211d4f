"""The page of a run that has no model to judge yet, because its training paused."""

from __future__ import annotations

from pathlib import Path

from yanmo.common.pages import html
from yanmo.promote.gate.verdict import Words
from yanmo.store.pause import PausedOutput

_TEMPLATE = Path(__file__).with_name("paused.html.jinja")


def pause_sentence(paused: PausedOutput) -> Words:
    """At which step, why, and how it goes on."""
    return Words(
        f"Paused at {paused.where} ({paused.why}): the channel's next run goes on there, with the data and "
        "options that this training began with.",
        f"已暂停于 {paused.where}（{paused.why}）：该频道的下一次运行从该处继续，数据与选项同训练开始时。",
    )


def render_pause(paused: PausedOutput, channel: str, champion: str) -> str:
    """The page as HTML.

    Args:
        champion: as a person calls it; empty where the channel has none.
    """
    return html.render(
        _TEMPLATE, {}, paused=paused, channel=channel, champion=champion, sentence=pause_sentence(paused)
    )
