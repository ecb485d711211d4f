from __future__ import annotations

from collections.abc import Iterator

import pytest

from yanmo.curate.sources import tables
from yanmo.curate.sources.batch import Bad
from yanmo.curate.sources.tables import table_records

LIMIT = 1000


def read(data: str | bytes, form: str = "csv", size: int = 7) -> list[tuple[int, object]]:
    raw = data.encode() if isinstance(data, str) else data
    chunks: Iterator[bytes] = (raw[at : at + size] for at in range(0, len(raw), size))
    return [tuple(found) for found in table_records(form, chunks, LIMIT)]


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_rows_are_numbered_by_the_line_they_begin_in(size: int) -> None:
    found = read('text,title\n"甲\n乙",x\n\n丙,"y ""z"""\n', size=size)
    assert found == [(2, {"text": "甲\n乙", "title": "x"}), (5, {"text": "丙", "title": 'y "z"'})]


def test_a_quote_that_is_not_closed_costs_its_own_line_alone() -> None:
    found = read('text,n\n甲,1\n"乙,2\n丙,3\n丁,4\n')
    assert [line for line, _ in found] == [2, 3, 4, 5]
    assert [getattr(v, "get", lambda _: None)("text") for _, v in found] == ["甲", None, "丙", "丁"]
    assert isinstance(found[1][1], Bad) and "a quote that is not closed" in found[1][1]


def test_quotes_that_close_by_chance_take_no_rows_with_them() -> None:
    found = read('text,n\n"甲,1\n乙,2\n丙 "x",3\n丁,4\n')
    assert [v["text"] for _, v in found if isinstance(v, dict)] == ["乙", '丙 "x"', "丁"]
    assert [line for line, v in found if isinstance(v, Bad)] == [2]


def test_a_table_with_tabs_may_know_no_quotes() -> None:
    assert read('text\tn\n"甲\t1\n乙" \t2\n"丙"\t3\n', "tsv") == [
        (2, {"text": '"甲', "n": "1"}),
        (3, {"text": '乙" ', "n": "2"}),
        (4, {"text": "丙", "n": "3"}),
    ]


def test_rows_of_other_lengths() -> None:
    found = read("text,n\n甲\n乙,1,\n丙,1,2\n")
    assert found[:2] == [(2, {"text": "甲"}), (3, {"text": "乙", "n": "1"})]
    assert found[2][
        1
    ] == "3 cells, expected 2 as in the first row (text, n): a cell with a delimiter in it " + (
        "needs quotes around"
    )


def test_tables_put_together_have_their_names_once() -> None:
    assert [v for _, v in read("text,n\n甲,1\ntext,n\n乙,2\n")] == [
        {"text": "甲", "n": "1"},
        {"text": "乙", "n": "2"},
    ]


@pytest.mark.parametrize("quoted", ['"', ""])
def test_a_monstrous_row_is_one_malformed_line(quoted: str) -> None:
    found = read(f"text\n甲\n{quoted}{'x' * 50_000}\n乙\n")
    assert [line for line, _ in found] == [2, 3, 4]
    assert isinstance(found[1][1], Bad) and found[2][1] == {"text": "乙"}


def test_a_row_over_very_many_lines_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_LINES", 3)
    found = read('text\n"甲\n乙\n丙\n丁"\n')
    assert [isinstance(v, Bad) for _, v in found] == [True, False, False, False]


def test_a_line_in_another_encoding_is_read_and_bytes_that_are_none_are_named() -> None:
    line = "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。"
    found = read(b"text\n" + line.encode("gb18030") + b"\n\xff\xff\n" + "乙\n".encode())
    assert found[0] == (2, {"text": line}) and found[2] == (4, {"text": "乙"})
    assert isinstance(found[1][1], Bad) and "not UTF-8" in found[1][1]
