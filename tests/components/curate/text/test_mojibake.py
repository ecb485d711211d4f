from __future__ import annotations

import pytest

from yanmo.curate.text.mojibake import has_typical_marks, repair

SIMPLIFIED = "我们的祖国历史悠久，人民勤劳。床前明月光，疑是地上霜！举头望明月，低头思故乡。"
TRADITIONAL = "我們的祖國歷史悠久，人民勤勞。床前明月光，疑是地上霜！舉頭望明月，低頭思故鄉。"


def misread(text: str, really: str, read_as: str) -> str:
    return text.encode(really).decode(read_as)


def can_be_misread(text: str, really: str, read_as: str) -> bool:
    """Whether anybody ever sees it: not where `read_as` cannot read the bytes at all."""
    try:
        return misread(text, really, read_as) != text
    except UnicodeError:
        return False


MISREADINGS = [
    (text, *how)
    for how in (
        ("utf-8", "latin-1"),
        ("gb18030", "latin-1"),
        ("gb18030", "cp1252"),
        ("big5", "latin-1"),
        ("big5", "gb18030"),
    )
    for text in (SIMPLIFIED, TRADITIONAL)
    if can_be_misread(text, *how)
]


@pytest.mark.parametrize(("text", "really", "read_as"), MISREADINGS)
def test_misread_text_is_read_again(text: str, really: str, read_as: str) -> None:
    garbled = misread(text, really, read_as)
    assert repair(garbled) == text
    assert repair(f"{garbled}\n又曰") == f"{text}\n又曰"


def test_no_misreading_is_left_out_but_those_that_cannot_be() -> None:
    assert len(MISREADINGS) == 8, "not big5 for simplified characters"


def test_bytes_read_as_gbk_are_repaired_where_no_character_was_lost() -> None:
    words = (
        "天地",
        "玄黄",
        "宇宙",
        "洪荒",
        "日月",
        "盈昃",
        "我们",
        "历史",
        "祖国",
        "人民",
        "明月",
        "故乡",
        "春秋",
    )
    readable = [word for word in words if "\ufffd" not in word.encode().decode("gb18030", "replace")]
    whole = "".join(readable) * 2
    garbled = misread(whole, "utf-8", "gb18030")
    assert len(readable) >= 4 and garbled != whole and repair(garbled) == whole
    lost = SIMPLIFIED.encode().decode("gb18030", "replace")
    assert "\ufffd" in lost and repair(lost) == lost


def test_a_garbled_run_inside_chinese_text_is_repaired_alone() -> None:
    name = misread("研墨", "utf-8", "latin-1")
    assert repair(f"书名：{name}，作者不详。") == "书名：研墨，作者不详。"


def test_text_that_was_misread_twice_is_read_again_twice() -> None:
    once = misread(SIMPLIFIED, "utf-8", "latin-1")
    assert repair(misread(once, "utf-8", "latin-1")) == SIMPLIFIED


@pytest.mark.parametrize(
    "text",
    [
        "", "abc", SIMPLIFIED, TRADITIONAL, "naïve café, déjà vu", "Ünïcödé", "Привет, мир",
        "日本語のテキストは漢字とかなで書かれています。東京の天気は今日も晴れでした。",
        "醯雞伺晨駕蚊翼，毫端棘刺分畛域。", "□□□□□，□□□□□。", "ÄÖÜ", "\x80\x81",
    ],
)  # fmt: skip
def test_text_that_was_read_rightly_is_left_alone(text: str) -> None:
    assert repair(text) == text


def test_headings_of_rare_characters_are_no_garbled_text() -> None:
    # each of these reads as common characters in Big5
    book = "\n".join(
        (SIMPLIFIED * 3, "○蚕种", "鸡祸：", "蝗虫螟", "○黍稷粱粟", "羊祸", "豕祸", "马祸", "臝虫之孽")
    )
    assert repair(book) == book


def test_no_document_of_the_fixture_is_touched(lines: list[dict[str, str]]) -> None:
    assert [line["text"] for line in lines if repair(line["text"]) != line["text"]] == []


def test_marks_of_lost_characters_are_known() -> None:
    assert has_typical_marks("锟斤拷") and not has_typical_marks("斤斤计较")
