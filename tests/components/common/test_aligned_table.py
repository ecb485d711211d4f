from yanmo.common.aligned_table import short_table, text_table, width


def test_chinese_characters_take_two_columns_and_combining_marks_none() -> None:
    assert [width(text) for text in ("诗", "ab", "。", "e\u0301")] == [2, 2, 2, 1]


def test_columns_stay_straight_next_to_chinese() -> None:
    lines = text_table([["genre", "model"], ["诗", "8.368"], ["mean", "-"]])
    assert lines == ["genre  model", "诗     8.368", "mean       -"]
    assert {width(line) for line in lines} == {12}


def test_a_log_shows_thirty_rows_and_how_many_more_there_are() -> None:
    rows = [["genre", "documents"], *([f"g{n}", "1"] for n in range(30)), ["all", "30"]]
    assert short_table(rows) == text_table(rows)
    lines = short_table([*rows[:-1], ["g30", "1"], ["g31", "1"], ["all", "32"]])
    assert lines[30:] == [
        "g29            1",
        "... and 2 rows more, in the output's files",
        "all           32",
    ]
