from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.curate.text import privacy
from yanmo.curate.text.privacy import KINDS, is_resident_id, mask

VALID = "11010519491231002X"  # the example of GB 11643-1999


@pytest.mark.parametrize(
    ("text", "masked", "kinds"),
    [
        ("请拨13800138000。", "请拨（电话）。", ("phone",)),
        ("电话：+86 138-0013-8000", "电话：（电话）", ("phone",)),
        ("电话：138 0013 8000转", "电话：（电话）转", ("phone",)),
        ("座机010-62345678，", "座机（电话），", ("phone",)),
        ("座机(0571) 88345678", "座机（电话）", ("phone",)),
        (f"身份证{VALID}", "身份证（身份证号）", ("id",)),
        ("身份证１１０１０５１９４９１２３１００２Ｘ号", "身份证（身份证号）号", ("id",)),
        ("写信到 li.si+a@mail.example.com.cn谢谢", "写信到 （邮箱）谢谢", ("mail",)),
        (f"{VALID}，13912345678，a@b.cn", "（身份证号），（电话），（邮箱）", KINDS),
    ],
)
def test_personal_data_is_replaced_by_what_it_was(text: str, masked: str, kinds: tuple[str, ...]) -> None:
    assert mask(text, KINDS) == (masked, tuple(k for k in KINDS if k in kinds))


@pytest.mark.parametrize(
    "text",
    [
        "公元1380年，人口12800000000。", "110105194912310021", "110105194913310020", "12345678901",
        "3.14159265358979",
        "@某人", "a@b", "订单号 2138001380001", "ISBN 978-7-101-00304-8", "2008-08-08 20:08", "",
        "床前明月光，疑是地上霜。",
    ],
)  # fmt: skip
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert mask(text, KINDS) == (text, ())


def test_only_the_kinds_asked_for_are_masked() -> None:
    assert mask(f"{VALID} 13800138000", ("phone",)) == (f"{VALID} （电话）", ("phone",))
    assert mask("13800138000", ()) == ("13800138000", ())


def test_one_wrong_digit_makes_no_identity_number() -> None:
    wrong = [VALID[:i] + str((int(VALID[i]) + 1) % 10) + VALID[i + 1 :] for i in range(17)]
    assert is_resident_id(VALID) and not any(map(is_resident_id, wrong))


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "1" * 200_000, "a." * 100_000, "a@" * 100_000, "0571-" * 40_000, "@" * 99_999]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    start = time.process_time()
    mask(text, KINDS)
    assert time.process_time() - start < 2.0


_PIECES = [
    *"0123456789 -+()@a.X",
    "13812345678",
    "138",
    "1234",
    "+86 ",
    "010-",
    "62345678",
    "(0571) ",
    VALID,
    "a@b.cn",
]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(_PIECES)).map("".join))
def test_what_is_masked_holds_an_at_sign_or_seven_digits(text: str) -> None:
    is_found = any(pattern.search(text) for _, pattern, _, _ in privacy._RULES)
    assert not is_found or "@" in text or privacy._NUMBER.search(text)
