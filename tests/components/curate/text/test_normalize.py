from __future__ import annotations

import re
import unicodedata

import numpy as np
import opencc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.chinese.text_runs import han_only
from yanmo.curate.mapped_texts import comparable
from yanmo.curate.text.normalize import (
    BREAK,
    CLASSICAL,
    HAN,
    LACUNA,
    MARK,
    PRIVATE,
    form_steps,
    is_han,
    normalize,
)

# The rules of text form classical-1 as they are scored, one string operation after the other.
_CC = opencc.OpenCC("t2s")
_P = str.maketrans(
    {
        ",": "，", ";": "；", ":": "：", "?": "？", "!": "！", "(": "（", ")": "）", "｡": "。", "､": "、",
        ".": "。", "「": "“", "」": "”", "『": "‘", "』": "’", "﹐": "，", "﹑": "、", "．": "。", "〔": "（",
        "〕": "）", "［": "（", "］": "）", "[": "（", "]": "）",
    }
)  # fmt: skip
_V = str.maketrans(
    "厯歴隂𤣥髙黄逺巻彚徳羣竒緫兎氷黙羙絶㑹甞埀觧㡬㣲濵栁閒鬰葢㳺揺缺",
    "历历阴玄高黄远卷汇德群奇总兔冰默美绝会尝垂解几微滨柳间郁盖游摇缺",
)
_WS = re.compile(r"[\s\u3000\ufeff\u200b-\u200f\x00-\x1f]+")
_COMPAT = {
    c: unicodedata.normalize("NFKC", chr(c))
    for c in [*range(0xF900, 0xFB00), *range(0x2F00, 0x2FE0), *range(0x2F800, 0x2FA20)]
    if unicodedata.normalize("NFKC", chr(c)) != chr(c)
}
_NOT_HAN = re.compile(r"[^\u3400-\u9fff\U00020000-\U0003ffff〇]")


def canon(line: str) -> str:
    composed = unicodedata.normalize("NFC", line).translate(_COMPAT)
    return _WS.sub("", _CC.convert(composed).translate(_V).translate(_P))


def reference(text: str) -> str:
    return "\n".join(filter(None, map(canon, text.splitlines())))


_HOSTILE = st.text(
    st.sampled_from(
        list("頭髮後天干乾隆皇后雲裏麵,;:?!().「『』」〔［﹐｡ 　\n\r\t\v\f\0\x01\x1c\x1f\x85\u2028\ufeff"
             "\u200b\u200f厯𤣥□〓�\ue000\U000f0000豈\uf907\u2f00\u2fd5\U0002f800e\u0301\u0338𠮷〇ab9é")
    )
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_HOSTILE | st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_batch_normalization_equals_the_rules_line_by_line(texts: list[str]) -> None:
    result = normalize(texts)
    assert result.texts == [reference(t) for t in texts]
    assert han_only(result.texts) == [_NOT_HAN.sub("", reference(t)) for t in texts]
    assert result.characters.tolist() == [len(reference(t).replace("\n", "")) for t in texts]


def test_real_documents_equal_the_rules_line_by_line(lines: list[dict[str, str]]) -> None:
    texts = [line["text"] for line in lines]
    assert normalize(texts).texts == [reference(t) for t in texts]


def test_every_variant_and_punctuation_mark_is_folded() -> None:
    olds = [chr(c) for c in (*_P, *_V, *_COMPAT)]
    assert normalize([f"天{old}地" for old in olds]).texts == [canon(f"天{old}地") for old in olds]


@pytest.mark.parametrize(
    ("raw", "written"),
    [
        ("行營病中,心許征南!", "行营病中，心许征南！"),
        ("「子曰」：『學而時習之』。", "“子曰”：‘学而时习之’。"),
        ("  一　二 \n\n \r\n三\u2028四", "一二\n三\n四"),
        ("\n\n", ""),
        ("", ""),
    ],
)
def test_written_form_by_example(raw: str, written: str) -> None:
    assert normalize([raw]).texts == [written]


def test_counts_tell_the_classes_of_characters_apart() -> None:
    (row,) = normalize(["天地□〓\ue000，。\n〇ab"]).counts
    assert [row[c] for c in (HAN, LACUNA, PRIVATE, MARK, BREAK)] == [3, 2, 1, 2, 1]


def test_han_is_what_the_scored_form_calls_han() -> None:
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    assert [c for c in codes if is_han(c)] == [c for c in codes if not _NOT_HAN.match(chr(c))]


def test_copies_are_recognised_across_scripts_in_every_form() -> None:
    steps = CLASSICAL - {"simplified", "variants"}
    assert normalize(["厯風\n𤣥"], steps).texts == ["厯風\n𤣥"]
    assert (
        comparable(["厯風\n𤣥"], "classical-1-simplified-variants")
        == ["历风玄"]
        == comparable(["历，风玄"], "classical-1")
    )


def test_each_step_says_which_texts_it_changed() -> None:
    texts = ["風", "风", "厯。", "a,b", "一 二", "e\u0301", "\u200b二", "■", "一\n二"]
    changed = normalize(texts, CLASSICAL | {"lacuna"}).changed
    found = {step: np.flatnonzero(which).tolist() for step, which in changed.items()}
    assert found == {
        "simplified": [0], "variants": [2], "punctuation": [3], "white_space": [4], "composition": [5],
        "controls": [6], "lacuna": [7],
    }  # fmt: skip


def test_a_form_is_named_after_the_steps_that_were_changed() -> None:
    assert form_steps("classical-1", "") == ("classical-1", CLASSICAL)
    name, steps = form_steps("classical-1", "lacuna, no-variants no-nfc")
    assert name == "classical-1+lacuna-nfc-variants"
    assert steps == (CLASSICAL | {"lacuna"}) - {"variants", "nfc"}
    for wrong in ("nfc", "no-lacuna", "nothing", "no-nothing"):
        with pytest.raises(ValueError, match="expected one of"):
            form_steps("classical-1", wrong)
