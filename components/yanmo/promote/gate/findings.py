"""What a rule asks for and what was found, in English and in Chinese: the rows of a verdict's table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.promote.gate.limits import LIMIT_METRICS, Limit
from yanmo.promote.gate.verdict import Words

ANOTHER = Words("another model than the champion", "与现任冠军不是同一个模型")
DOUBT = Words("gain above 0 beyond doubt", "提升确实大于零")
NEW = Words("not rolled back before", "不曾被人工撤下")
UNMEASURED = Words("not measured", "未测量")


def which(same_model: bool) -> Words:
    """Finding of rule 6."""
    return (
        Words("the champion itself", "正是现任冠军") if same_model else Words("another model", "另一个模型")
    )


def sure(gain: Mapping[str, Any], level: float) -> Words:
    """Finding of rule 7."""
    if gain["interval"] is None:
        return Words("no interval: one text in each genre", "没有区间：每个体裁只有一篇")
    low, high = gain["interval"]
    return Words(
        f"{100 * level:g} % interval {low:+.3f} to {high:+.3f} bits",
        f"{100 * level:g} % 区间 {low:+.3f} 至 {high:+.3f} 比特",
    )


def least(noise: Mapping[str, Any]) -> Words:
    """Rule 8: the margin, and what makes it."""
    asked, mean, why = percent(noise["margin"]), percent(noise["margin_of_mean"]), margin_of(noise)
    apart = apart_from_luck(noise)
    return Words(
        f"gain of at least {asked}, or of {mean} as the mean of three nights ({why.en}); {apart.en}",
        f"提升至少 {asked}，或三夜平均提升至少 {mean}（{why.zh}）；{apart.zh}",
    )


def apart_from_luck(noise: Mapping[str, Any]) -> Words:
    """The least gain that this channel can see."""
    apart = percent(noise["told_apart"])
    return Words(
        f"a true gain under {apart} may take more than three nights to be told from luck",
        f"真实提升若不足 {apart}，三夜之内未必能与运气区分",
    )


def margin_of(noise: Mapping[str, Any]) -> Words:
    """Return what the margin comes from."""
    if noise["of_noise"] <= noise["min_gain"]:
        return Words("the least gain asked for", "所要求的最小提升")
    times = f"{noise['of_noise'] / noise['margin_sd']:.1f}"
    sd, error = percent(noise["margin_sd"]), percent(noise["month_error"])
    nights = noise["nights_per_month"]
    return Words(
        f"{times} times the seed's noise of {sd}, {_known_from(noise).en}: what luck reaches in "
        f"{error} of months of {nights} nights",
        f"种子噪声 {sd} 的 {times} 倍，{_known_from(noise).zh}：{nights} 夜之月仅 {error} 凭运气可及",
    )


def _known_from(noise: Mapping[str, Any]) -> Words:
    if not noise["measured"]:
        return Words("which is assumed", "此为假定值")
    measured, twins = percent(noise["sd"]), noise["twins"]
    if noise["margin_sd"] != noise["sd"]:  # few twins make a wide margin also where they measured little
        return Words(
            f"the least that is used; {twins} twins measured {measured}",
            f"此为所信之最小值；{twins} 次短训测得 {measured}",
        )
    return Words(f"measured by {twins} twins", f"由 {twins} 次短训测得")


def percent(share: float) -> str:
    """A share as a person reads it, three digits of it."""
    return f"{100 * share:.3g} %"


def size(gain: Mapping[str, Any], mean: float | None) -> Words:
    """Finding of rule 8; `mean` is that of the last three nights, where there are three."""
    share = f"{100 * gain['share']:+.2f} %"
    found = Words(f"{share} of {gain['champion']:.3f} bits", f"{gain['champion']:.3f} 比特的 {share}")
    if mean is None:
        return found
    nights = f"{100 * mean:+.2f} %"
    return Words(f"{found.en}; {nights} as the mean of three nights", f"{found.zh}；三夜平均 {nights}")


def no_worse(limit: float) -> Words:
    """Rule 9."""
    return Words(f"no genre worse by more than {limit:g} bits", f"任一体裁变差不超过 {limit:g} 比特")


def worse(genres: Mapping[str, Mapping[str, Any]]) -> Words:
    """Finding of rule 9: the genres that are worse by too much."""
    english, chinese = [], []
    for name, g in genres.items():
        few = g["documents"] if g["few_documents"] else 0
        english.append(f"{name} by {-g['gain']:.3f} bits" + (f" ({few} texts only)" if few else ""))
        chinese.append(f"{name}差 {-g['gain']:.3f} 比特" + (f"（仅 {few} 篇）" if few else ""))
    return Words(", ".join(english) or "none", "，".join(chinese) or "无")


def clean(limit: float) -> Words:
    """Rule 1."""
    return Words(
        f"at most {100 * limit:g} % of the evaluated texts in the training text",
        f"评测文本见于训练文本的不超过 {100 * limit:g} %",
    )


def share(value: float | None) -> Words:
    """Finding of rule 1."""
    return UNMEASURED if value is None else Words(f"{100 * value:.2f} %", f"{100 * value:.2f} %")


def limit(bound: Limit) -> Words:
    """Rules 2 and 3."""
    en, zh = ("at most", "至多") if bound.sign == "<=" else ("at least", "至少")
    return Words(
        f"{LIMIT_METRICS[bound.metric].en}: {en} {bound.bound:g}",
        f"{LIMIT_METRICS[bound.metric].zh}：{zh} {bound.bound:g}",
    )


def number(value: float | None) -> Words:
    """Finding of rules 2 and 3."""
    return UNMEASURED if value is None else Words(f"{value:.3g}", f"{value:.3g}")


def taken_down(when: str) -> Words:
    """Finding of rule 4."""
    return Words(f"rolled back {when}", f"曾被撤下：{when}") if when else Words("no", "否")


CONFIRMED = Words(
    "gain above 0 on the confirmation split, which is looked at only now",
    "在此时才启用的确认集上，提升大于零",
)
NO_SPLIT = Words(
    "the evaluation set of this channel has no confirmation split; a channel begun with more text has one",
    "此频道的评测集没有确认集；用更多文本另起的频道会有",
)
UNSCORED = Words(
    "the models were not scored on the confirmation split (evaluate scores it with the test split)",
    "两个模型都没有在确认集上评分（只有评测测试集时才一并评分）",
)


def unscored(evaluation: str, command: str) -> Words:
    """Finding of rule 10 where only one of the models was scored."""
    return Words(
        f"{evaluation} was not scored on the confirmation split; measure it again: {command}",
        f"{evaluation} 没有在确认集上评分；请重新评测：{command}",
    )


def read_before(share: float) -> Words:
    """Finding of rule 10 for a challenger that was trained on the texts."""
    return Words(
        f"{100 * share:.2f} % of the confirmation texts are in the challenger's training text, so they "
        "confirm nothing and were not looked at",
        f"确认集有 {100 * share:.2f} % 的文本见于挑战者的训练文本，不足为证，故未启用",
    )


def on_confirmation(gain: Mapping[str, Any], level: float) -> Words:
    """Finding of rule 10."""
    bits, number, sure = f"{gain['bits']:+.3f}", f"{gain['documents']:,}", f"{100 * level:g} %"
    if gain["lowest"] is None:
        return Words(
            f"{bits} bits on {number} texts kept apart, and no bound: one text in each genre",
            f"{number} 篇另存的文本上提升 {bits} 比特，没有下限：每个体裁只有一篇",
        )
    low = f"{gain['lowest']:+.3f}"
    return Words(
        f"{bits} bits on {number} texts kept apart, {low} or more with {sure} confidence",
        f"{number} 篇另存的文本上提升 {bits} 比特，以 {sure} 的把握不低于 {low}",
    )
