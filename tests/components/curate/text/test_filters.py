from __future__ import annotations

import re
from typing import Any

import pytest

from yanmo.curate.text.cleaning import Cleaning, clean_all
from yanmo.curate.text.filter_sets import REASONS, SETS, WEB, limits_of
from yanmo.curate.text.filters import FilterRules, judge
from yanmo.curate.text.normalize import normalize

VERSE = "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。"


BASIC = {
    "markup": 0, "stub": 0, "garbled": 0, "too_short": 10, "not_han": 0.5, "private_use": 0.01,
    "lacuna": 0.03, "too_long": 1000,
}  # fmt: skip


def verdict(text: str, name: str = "verse", changes: str = "", **basic: Any) -> str | None:
    rules = FilterRules(limits=limits_of(BASIC | basic, changes), sets={"*": name})
    cleaned = clean_all([text], Cleaning())
    return judge(cleaned, normalize([c.text for c in cleaned]), ["诗"], rules).reasons[0] or None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (VERSE, None),
        (VERSE.replace("，", "").replace("。", ""), None),
        ("床前明月光。", "too_short"),
        ("", "too_short"),
        (VERSE + " abcdefghijklmnopqrstuvwxyz" * 2, "not_han"),
        (VERSE.replace("光", "□"), "lacuna"),
        (VERSE.replace("明", "〓"), "lacuna"),
        (VERSE.replace("疑是", "疑?是"), "lacuna"),
        (VERSE.replace("。\n", "?\n"), None),
        (VERSE.replace("光", "\ue123"), "private_use"),
        (VERSE * 10 + "\ue123", None),
        (VERSE + "（表略）", "stub"),
        (VERSE + "(以下表格略)", "stub"),
        ("略" + VERSE, None),
        (VERSE + "<img src=", "markup"),
        (VERSE + "&unknownentity;", "markup"),
        (VERSE + "<br/><strong>又</strong>&lt;&#x660E;", None),
        (VERSE * 50, "too_long"),
    ],
)
def test_each_filter_drops_what_it_is_for(text: str, reason: str | None) -> None:
    assert verdict(text) == reason


def test_two_thousand_han_characters_are_a_text_whatever_is_beside_them() -> None:
    assert verdict("中" * 2000 + "select " * 2000, too_long=1e6) is None
    assert verdict("中" * 1999 + "select " * 2000, too_long=1e6) == "not_han"


def test_of_notes_with_fenced_code_the_prose_is_measured() -> None:
    code = "```java\n" + "int a = 1;\n" * 200 + "```\n"
    assert verdict(VERSE + "\n\n" + code, too_long=1e6) is None
    assert verdict(VERSE + "\n\n" + code.replace("```", ""), too_long=1e6) == "not_han"
    assert verdict("An English page, by 王维。" * 9 + VERSE[:9] + "\n\n" + code, too_long=1e6) == "not_han"
    assert verdict("~~~\n# 画一条线，再画一条线\n" + "draw(1, 2)\n" * 99 + "~~~\n", too_long=1e6) == "not_han"


def test_thresholds_are_the_options() -> None:
    assert verdict("床前明月光。", too_short=5) is None
    assert verdict(VERSE.replace("光", "□"), lacuna=0.1) is None
    assert verdict("", too_short=0, not_han=0.0) == "too_short"


PROSE = "".join(
    f"{a}者，{b}之所以为{c}也。"
    for a, b, c in zip("天地人山水木金火土风", "道德仁义礼智信忠孝廉", "春夏秋冬东西南北上下", strict=True)
)


LINES = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜金生丽水玉出"


def test_web_filters_never_touch_verse_and_none_drops_only_what_is_empty() -> None:
    refrain = "采采芣苢，薄言采之。\n采采芣苢，薄言有之。\n" * 3
    assert verdict(refrain) is None
    assert verdict(refrain, "classical", "few_words=0,letters=0").startswith("repeated")  # type: ignore[union-attr]
    assert verdict("短", "none") is None and verdict("<b", "none") is None
    assert verdict(" \n", "none") == "too_short"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROSE, None),
        (PROSE[:33], "few_words"),
        (PROSE.replace("。", ""), "line_ends"),
        (PROSE + "\n甲。" * 40, "repeated_lines"),
        (PROSE + PROSE[:40] * 4, "repeated_5_grams"),
        ("\n".join(f"{LINES[i : i + 3]}。" for i in range(0, len(LINES), 3)), "line_breaks"),
        ("天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏" * 3, "repeated_5_grams"),
        ("天地。玄黄。" + PROSE.replace("者，", "，，，"), "letters"),
    ],
)
def test_classical_filters_are_those_of_fineweb_2(text: str, reason: str | None) -> None:
    assert verdict(text, "classical", "letters=0.7" if reason != "letters" else "") == reason


def test_modern_text_is_cut_into_words_and_page_furniture_is_dropped() -> None:
    story = (
        "小王昨天在北京的图书馆里看了一本关于历史的书，他觉得书中的人物是很有意思的。"
        "后来他又和朋友去了公园，那里的花已经开了，许多老人在树下下棋，孩子们也跑来跑去。"
        "晚上回家以后，他把这些事情写进日记，希望明年春天还能再去一次。"
    )
    assert verdict(story, "modern") is None
    pages = "\n".join(
        (story, "责任编辑：李四", "版权所有 未经许可不得转载。", "上一篇：春天来了", "分享到微信。")
    )
    assert verdict(pages, "modern", "boilerplate=0.2") == "boilerplate"
    unlinked = re.sub("[的了在是和也他有人中]", "", story)
    assert verdict(unlinked, "modern", "few_words=20") == "stop_words"


def test_published_thresholds_are_as_published() -> None:
    assert (WEB["classical"]["letters"], WEB["modern"]["letters"]) == (0.826, 0.735)
    assert (WEB["classical"]["top_2_grams"], WEB["modern"]["top_2_grams"]) == (1.588, 0.256)
    assert (WEB["classical"]["repeated_10_grams"], WEB["modern"]["repeated_10_grams"]) == (0.137, 0.127)


def test_a_threshold_can_be_changed_for_one_set_or_for_all() -> None:
    limits = limits_of(BASIC, "lacuna=0.5, classical.letters=0.7,verse.line_ends=0.1")
    assert {limits[s]["lacuna"] for s in SETS[:3]} == {0.5} and "lacuna" not in limits["none"]
    assert (limits["classical"]["letters"], limits["modern"]["letters"]) == (0.7, 0.735)
    assert (
        limits["verse"]["line_ends"] == 0.1
        and verdict("床前明月光" * 3, changes="verse.line_ends=0.1") == "line_ends"
    )


@pytest.mark.parametrize("changes", ["lacuna", "lacuna=x", "nothing=1", "poem.lacuna=1"])
def test_a_threshold_that_says_nothing_is_refused(changes: str) -> None:
    with pytest.raises(ValueError, match=r"expected (a number|filter=number)"):
        limits_of(BASIC, changes)


def test_every_filter_of_a_set_has_a_name_and_a_direction() -> None:
    assert {name for limits in limits_of(BASIC, "").values() for name in limits} == set(REASONS)
