from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.curate.text.cleaning import CLEANINGS, Cleaning, clean, clean_all
from yanmo.curate.text.normalize import normalize


def test_markup_becomes_lines_and_characters() -> None:
    cleaned = clean("<p>甲<br/>乙</p><strong>丙</strong><!-- x\n -->&lt;丁&gt;&#20057;&nbsp;戊")
    assert normalize([cleaned.text]).texts == ["甲\n乙\n丙<丁>乙戊"]
    assert cleaned.changes == ("markup",) and not cleaned.has_markup


def test_private_use_characters_become_the_mark_for_a_lost_one() -> None:
    cleaned = clean("天\ue000地\U000f0000")
    assert (cleaned.text, cleaned.private_use, cleaned.changes) == ("天〓地〓", 2, ("private_use",))


CODE = Cleaning(code=True)


@pytest.mark.parametrize(
    "text",
    [
        "#include <stdio.h>\n#include <vector>",
        "List<String> x = new ArrayList<>(); Map<K, V> m; a<b && c>d; if (p < q) x >>= 1;",
        "<store>/cas/<stage>/<key>/MANIFEST.json 与 s3://<桶>",
        "你好?我很好?真的?",
        "0 < p and p > 1, 2 <h 3",
        "AT&T; R&D，x & y",
    ],
)
def test_program_code_is_no_markup_where_texts_hold_code(text: str) -> None:
    cleaned = clean(text, CODE)
    assert (cleaned.text, cleaned.has_markup, cleaned.lost) == (text, False, 0)


@given(st.text(st.sampled_from(list("<>/&;ab1T p中?\n"))))
def test_only_elements_of_html_and_entities_are_taken_out_of_code(text: str) -> None:
    known = re.search(r"</?(?:a|b|p)[\s/>]|&[a-z]+;", text)
    assert known or clean(text, CODE).text == text


def test_html_is_taken_out_of_modern_text_too() -> None:
    raw = "<p class='x'>甲<br/>乙</p><strong>丙</strong><!-- x -->&lt;div&gt;&nbsp;<a href=\"y\">丁</a>"
    cleaned = clean(raw, CODE)
    assert normalize([cleaned.text]).texts == ["甲\n乙\n丙<div>丁"]
    assert cleaned.changes == ("markup",)
    assert clean('<p class="甲', CODE).has_markup and not clean('<key class="甲', CODE).has_markup


@pytest.mark.parametrize("how", [Cleaning(), CODE])
@pytest.mark.parametrize(
    "text",
    [
        "<" * 50_000,
        "<p" * 50_000,
        "<p " * 50_000,
        "<br/" * 50_000,
        "<a" * 50_000,
        "&#" * 50_000,
        "<!--" * 5_000,
        "?" * 100_000,
    ],
)
def test_hostile_markup_takes_no_time_to_clean(text: str, how: Cleaning) -> None:
    start = time.process_time()
    clean(text, how)
    assert time.process_time() - start < 2.0


def test_cleaning_many_texts_gives_what_cleaning_each_gives(lines: list[dict[str, str]]) -> None:
    texts = [line["text"] for line in lines] + [
        "", "\0", "电话13800138000", "ä¸\xadå\x9b½", "<b>甲</b>", "\ue000", "甲?乙", "（表略）", "abc",
        "邮箱 a@b.cn。",
    ]  # fmt: skip
    for how in (Cleaning(), Cleaning(personal=(), squares=True), Cleaning(steps=frozenset(CLEANINGS)), CODE):
        assert clean_all(texts, how) == [clean(text, how) for text in texts]


def test_steps_that_are_left_out_leave_the_text_alone() -> None:
    text = "<b>甲</b>\ue000 13800138000 责任编辑：李"
    assert clean(text, Cleaning(steps=frozenset(), personal=())).text == text
    assert clean("甲\n责任编辑：李\n乙", Cleaning(steps=frozenset(("boilerplate",)))).text == "甲\n乙"


def test_lost_characters_become_squares_on_request() -> None:
    assert clean("疑?是地??上霜?", Cleaning(squares=True)).text == "疑□是地□□上霜?"
    assert clean("疑?是").lost == 1


@pytest.mark.parametrize(
    ("text", "garbled"),
    [
        ("床前明月光，疑是地上霜。举头望明月，低头思故乡。", False),
        ("鎴戜滑鐨勭鍥芥槸涓�涓巻鍙叉偁涔呯殑鍥藉", True),
        ("数据错误锟斤拷锟斤拷请检查", True),
        ("ÎÒÃÇµÄ×æ¹úÊÇÒ»¸", True),
        ("粲粲新霜縞瓦溝，離離寒菜入盤羞。贅童擁篲掃枯葉，聵婢挑燈縫破裘。", False),
        ("Ça va très bien à Paris, où il fait beau été comme hiver.", False),
    ],
)
def test_garbled_text_is_told_from_rare_words(text: str, garbled: bool) -> None:
    assert clean(text).is_garbled == garbled


def test_a_long_modern_page_is_no_stub_for_one_remark() -> None:
    """A page of documentation says (table omitted) once; a poem or a short answer that does is not whole."""
    page = "第一节说明用法。" * 125
    assert not clean(page + "（表略）", CODE).is_stub
    assert clean(page[:900] + "（表略）", CODE).is_stub
    assert clean(page + "（表略）" * 2, CODE).is_stub
    assert clean(page + "（表略）").is_stub
