from yanmo.common.aligned_table import text_table, width


def test_chinese_characters_take_two_columns_and_combining_marks_none() -> None:
    assert [width(text) for text in ("诗", "ab", "。", "e\u0301")] == [2, 2, 2, 1]


def test_columns_stay_straight_next_to_chinese() -> None:
    lines = text_table([["genre", "model"], ["诗", "8.368"], ["mean", "-"]])
    assert lines == ["genre  model", "诗     8.368", "mean       -"]
    assert {width(line) for line in lines} == {12}
