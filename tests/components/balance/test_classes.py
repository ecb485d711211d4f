from __future__ import annotations

import pyarrow as pa
import pytest

from yanmo.balance.classes import columns_of, form_of, joined, values_by_part

ROWS = pa.table(
    {
        "genre": ["诗", "文"],
        "author": ["李白", ""],
        "text": ["床前明月光，疑是地上霜。\n举头望明月，低头思故乡。", "三人行，必有我师焉。"],
        "labels": pa.array([[("dynasty", "唐")], []], pa.map_(pa.string(), pa.string())),
    }
)


@pytest.mark.parametrize(
    ("by", "classes"),
    [
        ("genre", ["诗", "文"]),
        ("author", ["李白", "-"]),
        ("dynasty", ["唐", "-"]),
        ("length", ["16-", "0-15"]),
        ("form", ["5x4", "free"]),
        ("genre+dynasty", ["诗/唐", "文/-"]),
        ("genre + dynasty", ["诗/唐", "文/-"]),
    ],
)
def test_a_class_is_the_value_of_any_label(by: str, classes: list[str]) -> None:
    assert joined(values_by_part(ROWS.select(columns_of(by)), [24, 10], by, (16,))) == classes


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("白日依山尽，黄河入海流。\n欲穷千里目，更上一层楼。", "5x4"),
        ("两个黄鹂鸣翠柳，一行白鹭上青天。\n窗含西岭千秋雪，门泊东吴万里船。", "7x4"),
        ("关关雎鸠，在河之洲。", "4xn"),
        ("醉来玉树倚风前。\n举吟鞭。", "free"),
        ("", "free"),
        ("厚人伦而美教化移风俗也", "free"),
    ],
)
def test_the_form_of_verse_comes_from_its_clauses(text: str, form: str) -> None:
    assert form_of(text) == form
