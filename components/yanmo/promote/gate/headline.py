"""A verdict in one sentence of at most 20 words: what a person reads first; the conditions follow it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from yanmo.promote.gate.verdict import Words

_OUTCOMES = re.compile(r"(?:Not promoted|Not valid|Promoted): (\w)")
_ZH_OUTCOMES = re.compile(r"(?:不晋升|无效|晋升)：")
_WHY = {
    "contamination_measured": Words(
        "nobody could look for the evaluated texts in its training text",
        "无从查证评测文本是否见于训练文本",
    ),
    "not_contaminated": Words("evaluated texts are in its training text", "评测文本见于训练文本"),
    "not_collapsed": Words("the model has collapsed", "模型已坍塌"),
    "within_limits": Words("a metric is out of its limits", "指标越限"),
    "not_rolled_back": Words("this model was taken down before", "此模型曾被撤下"),
    "another_model": Words("the challenger is the champion itself", "挑战者正是现任冠军"),
    "beyond_doubt": Words("a gain of {gain}, which may be luck", "提升 {gain}，可能出于偶然"),
    "large_enough": Words("a gain of {gain}, and {asked} is asked for", "提升 {gain}，而要求 {asked}"),
    "no_genre_lost": Words("better on average, but a genre lost too much", "平均更好，但有体裁变差过多"),
    "confirmed": Words(
        "a gain of {gain}, which the confirmation split does not confirm", "提升 {gain}，但确认集未予确认"
    ),
}
"""Rule that a challenger failed first -> why it is not promoted."""
_NO_BETTER = Words("no better than the champion ({gain})", "不优于现任冠军（{gain}）")


def headline(verdict: Mapping[str, Any], is_held: bool = False) -> Words:
    """Return the sentence.

    Args:
        verdict: as verdict.json and report.json hold it.
        is_held: whether the model won and waits for a person.
    """
    gain, outcome = verdict.get("gain"), verdict["outcome"]
    share = f"{100 * gain['share']:+.2f} %" if gain else ""
    if is_held:
        by = f", by {share.lstrip('+')} of the bits per character" if gain else ""
        by_zh = f"（每字比特少 {share.lstrip('+')}）" if gain else ""
        return Words(f"Held: it won{by}, and waits for a person.", f"待定：胜出{by_zh}，待人决定。")
    if outcome == "promoted" and not gain:
        return Words("Promoted: it is the channel's first champion.", "晋升：它是此频道的第一个冠军。")
    if outcome == "promoted":
        return Words(
            f"Promoted: {share.lstrip('+')} fewer bits per character than the champion.",
            f"晋升：每字比特比现任冠军少 {share.lstrip('+')}。",
        )
    failed = next(check["name"] for check in verdict["checks"] if check["passed"] is False)
    compares = failed in ("beyond_doubt", "large_enough", "no_genre_lost")
    why = _NO_BETTER if compares and gain and gain["bits"] <= 0 else _WHY[failed]
    asked = f"{100 * (verdict.get('noise') or {}).get('margin', 0.0):.2f} %"
    first, zh = ("Not valid", "无效") if outcome == "not valid" else ("Not promoted", "不晋升")
    return Words(
        f"{first}: {why.en.format(gain=share, asked=asked)}.",
        f"{zh}：{why.zh.format(gain=share, asked=asked)}。",
    )


def conditions(sentence: Words) -> Words:
    """Return the verdict's own sentence as it follows the headline, which has said the outcome."""
    said = _OUTCOMES.sub(lambda match: match[1].upper(), sentence.en)
    return Words(said, _ZH_OUTCOMES.sub("", sentence.zh))
