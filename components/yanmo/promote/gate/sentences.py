"""The one sentence of a verdict, in English and in Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.promote.gate.findings import UNMEASURED, apart_from_luck, margin_of, percent, sure
from yanmo.promote.gate.verdict import Check, Rules, Words


def with_noise(sentence: Words, noise: Mapping[str, Any]) -> Words:
    """`sentence` of a comparison; where nobody measured the seed's noise, that comes first."""
    if noise["measured"]:
        return sentence
    sd = percent(noise["sd"])
    return Words(
        f"The seed's noise was not measured, {sd} is assumed. {sentence.en}",
        f"种子噪声未测量，假定为 {sd}。{sentence.zh}",
    )


def first(mean: float) -> Words:
    """The sentence where there was no champion."""
    return Words(
        f"Promoted: the channel had no champion yet; {mean:.3f} bits per character over its genres.",
        f"晋升：此频道此前没有冠军；各体裁平均每字 {mean:.3f} 比特。",
    )


def promoted(gain: Mapping[str, Any], rules: Rules, noise: Mapping[str, Any]) -> Words:
    """The sentence of a change of champions."""
    found, against = sure(gain, rules.level), _against(gain)
    share, limit = f"{100 * gain['share']:.2f} %", f"{rules.max_genre_loss:g}"
    nights = _nights(noise) if gain["share"] < noise["margin"] else Words("", "")
    return Words(
        f"Promoted: {against.en}, a gain of {gain['bits']:.3f} bits or {share} ({found.en}){nights.en}; "
        f"no genre is worse by more than {limit} bits.",
        f"晋升：{against.zh}，提升 {gain['bits']:.3f} 比特，即 {share}（{found.zh}）{nights.zh}；"
        f"没有体裁变差超过 {limit} 比特。",
    )


def _nights(noise: Mapping[str, Any]) -> Words:
    """The mean of three nights and the margin for it; nothing where there are fewer nights."""
    if noise["mean"] is None:
        return Words("", "")
    found, asked = f"{100 * noise['mean']:.2f} %", percent(noise["margin_of_mean"])
    return Words(
        f"; the mean gain of the last three nights of this recipe is {found}, asked for {asked}",
        f"；此配方最近三夜平均提升 {found}，要求 {asked}",
    )


def refused(
    check: Check,
    gain: Mapping[str, Any] | None = None,
    rules: Rules | None = None,
    noise: Mapping[str, Any] | None = None,
) -> Words:
    """The sentence of a challenger that is not promoted, by the first rule that it failed."""
    if gain is not None and rules is not None and noise is not None:
        compared = _compared(check, gain, rules, noise)
        if compared:
            return compared
    return _FITNESS[check.name](check)


def _out_of_bounds(check: Check, what: Words) -> Words:
    """The sentence for a limit that is exceeded, or whose metric nobody measured."""
    if check.finding == UNMEASURED:
        return Words(
            f"Not promoted: a limit is set on a metric that was not measured: {check.rule.en}. Evaluate with "
            "--samples and --documents, or leave it out of --limits.",
            f"不晋升：所限指标未测量：{check.rule.zh}。"
            "请以 --samples 与 --documents 重新评测，或从 --limits 中去掉。",
        )
    return Words(
        f"Not promoted: {what.en}: {check.rule.en}, found {check.finding.en}.",
        f"不晋升：{what.zh}：{check.rule.zh}，实为 {check.finding.zh}。",
    )


def unsearched(sentence: Words) -> Words:
    """`sentence`, after the note that nobody looked for the test split in the training text."""
    return Words(
        "Not measured, which was accepted: whether the evaluated texts are in the training text. "
        f"{sentence.en}",
        f"未测量而予以接受：评测文本是否见于训练文本。{sentence.zh}",
    )


_FITNESS = {
    "contamination_measured": lambda c: Words(
        "Not measured: whether the evaluated texts are in the training text, as the store does not show all "
        "of that text. Not promoted: evaluate again (--force) where the training text is, or accept this by "
        "name (--accept-unmeasured contamination).",
        "未测量：评测文本是否见于训练文本，因为从存储中查不到全部训练文本。"
        "不晋升：请在有训练文本之处重新评测（--force），或指名接受（--accept-unmeasured contamination）。",
    ),
    "not_contaminated": lambda c: Words(
        f"Not valid: {c.finding.en} of the evaluated texts are in the training text; expected {c.rule.en}.",
        f"无效：评测文本有 {c.finding.zh} 见于训练文本；要求{c.rule.zh}。",
    ),
    "not_collapsed": lambda c: _out_of_bounds(c, Words("the model has collapsed", "模型已坍塌")),
    "within_limits": lambda c: _out_of_bounds(c, Words("a metric is out of its limits", "指标越限")),
    "not_rolled_back": lambda c: Words(
        f"Not promoted: this model was taken down before: {c.finding.en}.",
        f"不晋升：此模型{c.finding.zh}。",
    ),
}


def _against(gain: Mapping[str, Any]) -> Words:
    return Words(
        f"{gain['challenger']:.3f} bits per character against the champion's {gain['champion']:.3f}",
        f"每字 {gain['challenger']:.3f} 比特，现任冠军 {gain['champion']:.3f}",
    )


def _compared(check: Check, gain: Mapping[str, Any], rules: Rules, noise: Mapping[str, Any]) -> Words | None:
    """The sentence for a rule that compares; None for one that does not."""
    against, found = _against(gain), sure(gain, rules.level)
    if check.name == "another_model":
        return Words("Not promoted: the challenger is the champion itself.", "不晋升：挑战者正是现任冠军。")
    if check.name in ("beyond_doubt", "large_enough", "no_genre_lost") and gain["bits"] <= 0:
        return Words(
            f"Not promoted: no better than the champion: {against.en}.",
            f"不晋升：不优于现任冠军：{against.zh}。",
        )
    if check.name == "beyond_doubt" and gain["interval"] is None:
        return Words(
            f"Not promoted: the gain may be luck: {against.en}, on one text in each genre. Evaluate on more.",
            f"不晋升：提升可能出于偶然：{against.zh}，且每个体裁只有一篇。请用更多文本评测。",
        )
    if check.name == "beyond_doubt":
        return Words(
            f"Not promoted: the gain may be luck: {against.en}, but the gain's {found.en} includes 0.",
            f"不晋升：提升可能出于偶然：{against.zh}，而提升的 {found.zh}，包含零。",
        )
    if check.name == "large_enough":
        asked, reached, why = percent(noise["margin"]), f"{100 * gain['share']:.2f} %", margin_of(noise)
        nights, apart = _nights(noise), apart_from_luck(noise)
        return Words(
            f"Not promoted: the gain of {reached} is below the {asked} asked for ({why.en}){nights.en}: "
            f"{against.en}. With this recipe {apart.en}.",
            f"不晋升：提升 {reached}，不足所要求的 {asked}（{why.zh}）{nights.zh}：{against.zh}。"
            f"以此配方，{apart.zh}。",
        )
    if check.name == "no_genre_lost":
        return Words(
            f"Not promoted: better on average, but worse in {check.finding.en} "
            f"(at most {rules.max_genre_loss:g} is allowed): {against.en}.",
            f"不晋升：平均更好，但{check.finding.zh}（至多允许 {rules.max_genre_loss:g}）：{against.zh}。",
        )
    return None


def confirmed(sentence: Words, finding: Words) -> Words:
    """The sentence of a promotion that was confirmed."""
    return Words(f"{sentence.en} Confirmed: {finding.en}.", f"{sentence.zh}已确认：{finding.zh}。")


def unconfirmed(finding: Words, sentence: Words) -> Words:
    """The sentence of a promotion that nothing confirmed."""
    return Words(f"Not confirmed: {finding.en}. {sentence.en}", f"未经确认：{finding.zh}。{sentence.zh}")


def not_confirmed(finding: Words, sentence: Words) -> Words:
    """The sentence of a challenger that failed rule 10 alone.

    What was not measured stays first; what the challenger did on the test split comes last.
    """
    (first, _, test), (zh_first, _, zh_test) = (
        sentence.en.partition("Promoted: "),
        sentence.zh.partition("晋升："),
    )
    return Words(
        f"{first}Not promoted: not confirmed: {finding.en}; on the test split: {test}",
        f"{zh_first}不晋升：未获确认：{finding.zh}；测试集上：{zh_test}",
    )
