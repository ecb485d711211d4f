"""The audit of text: a change made here has its class, and our own pages have none that is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import text_audit  # noqa: E402
from text_audit import RIGHT, WRONG  # noqa: E402

CODE = "甲\n\n```python\nif a:\n    b = 1\n```\n\n乙 `c<d>` 丙\n"


@pytest.mark.parametrize(
    ("raw", "made", "kind"),
    [
        ("甲 \n乙", "甲\n乙", "line ends"),
        ("甲\n\n\n\n乙", "甲\n\n\n乙", "empty lines"),
        ("<p>甲</p>\n乙", "甲\n乙", "tags"),
        ("甲&amp;乙", "甲&乙", "references"),
        ("甲\u200b乙", "甲乙", "invisible"),
        ("⻓安", "长安", "composed"),
        ("國家", "国家", "simplified"),
        ("甲\ue4bd乙", "甲〓乙", "private use"),
        ("写信到 a@b.cn 吧", "写信到 （邮箱） 吧", "masks"),
        (CODE, CODE.replace("b = 1", "b = 2"), "code"),
        (CODE, CODE.replace("`c<d>`", "`c`"), "code"),
        (CODE, CODE.replace("    b", "  b"), "white space"),
        ("甲\n\n乙", "甲\n乙", "white space"),
        ("  甲", "甲", "white space"),
        ("狼藉甲", "暧贤甲", "letters"),
        ("甲 2<sup>7</sup>", "甲 2⁷", "tags"),
        ("甲 2<sup>7</sup>", "甲 27", "letters"),
        ("甲 <run-id> 乙", "甲  乙", "unknown tags"),
        ("他说「好」。", "他说“好”。", "other"),
    ],
)
def test_a_change_has_its_class(raw: str, made: str, kind: str) -> None:
    assert {change.kind for change in text_audit.changes(raw, made, "x")} == {kind}
    assert kind in RIGHT or kind in WRONG


def test_fewer_than_one_change_in_100_000_characters_of_our_own_pages_is_wrong() -> None:
    sums, found = text_audit.audit(str(ROOT / "docs"))
    assert sums["documents"] >= 60 and sums["characters"] > 200_000
    assert sum(change.kind in WRONG for change in found) < 1e-5 * sums["characters"]
