from __future__ import annotations

import time
from typing import Any

import pytest

from yanmo.curate.filters import REASONS, Limits, clean, judge
from yanmo.curate.normalize import normalize

VERSE = "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。"


def verdict(text: str, **changes: Any) -> str | None:
    values: dict[str, Any] = {
        "min_han_characters": 10,
        "max_characters": 1000,
        "min_han_share": 0.5,
        "max_lacuna_share": 0.03,
        "max_private_use_share": 0.01,
    }
    cleaned = [clean(text)]
    (found,) = judge(cleaned, normalize([c.text for c in cleaned]), Limits(**(values | changes)))
    return None if found < 0 else REASONS[found]


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


def test_thresholds_are_the_options() -> None:
    assert verdict("床前明月光。", min_han_characters=5) is None
    assert verdict(VERSE.replace("光", "□"), max_lacuna_share=0.1) is None
    assert verdict("", min_han_characters=0, min_han_share=0.0) == "too_short"


def test_markup_becomes_lines_and_characters() -> None:
    cleaned = clean("<p>甲<br/>乙</p><strong>丙</strong><!-- x\n -->&lt;丁&gt;&#20057;&nbsp;戊")
    assert normalize([cleaned.text]).texts == ["甲\n乙\n丙<丁>乙戊"]
    assert cleaned.changes == ("markup",) and not cleaned.has_markup


def test_private_use_characters_become_the_mark_for_a_lost_one() -> None:
    cleaned = clean("天\ue000地\U000f0000")
    assert (cleaned.text, cleaned.private_use, cleaned.changes) == ("天〓地〓", 2, ("private_use",))


@pytest.mark.parametrize("text", ["<" * 50_000, "<a" * 50_000, "&#" * 50_000, "<!--" * 5_000, "?" * 100_000])
def test_hostile_markup_takes_no_time_to_clean(text: str) -> None:
    start = time.process_time()
    clean(text)
    assert time.process_time() - start < 2.0
