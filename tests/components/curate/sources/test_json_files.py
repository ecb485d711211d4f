from __future__ import annotations

import json
from typing import Any

import pytest

from yanmo.curate.sources.batch import Bad, Nothing
from yanmo.curate.sources.json_files import are_json_lines, json_records

COLUMNS = ["text", "title", "author", "genre"]


def read(data: str | bytes, size: int = 7, pair: tuple[str, str] | None = None) -> list[tuple[int, Any]]:
    raw = data.encode() if isinstance(data, str) else data
    chunks = (raw[at : at + size] for at in range(0, len(raw), size))
    return [tuple(found) for found in json_records(chunks, COLUMNS, pair)]


@pytest.mark.parametrize("size", [1, 2, 5, 10_000])
def test_elements_come_one_by_one_with_their_lines(size: int) -> None:
    data = '[\n{"text": "甲"},\n\n{"text":\n"乙"}, "丙",\n 12345, {"x": NaN}\n]\n[{"text": "丁"}]'
    assert read(data, size) == [
        (2, {"text": "甲"}),
        (4, {"text": "乙"}),
        (5, {"text": "丙"}),
        (6, 12345),
        (6, {"x": None}),
        (8, {"text": "丁"}),
    ]


def test_what_stands_above_holds_for_what_is_below() -> None:
    book = {
        "title": "千家诗",
        "author": "谢枋得",
        "content": [
            {
                "type": "五言绝句",
                "content": [
                    {"chapter": "春眠", "author": "孟浩然", "paragraphs": ["春眠不觉晓"]},
                    {"title": "访袁", "paragraphs": ["洛阳访才子"]},
                ],
            }
        ],
    }
    first, second = (record for _, record in read(json.dumps(book)))
    assert (first["title"], first["author"]) == ("千家诗", "孟浩然")
    assert (second["title"], second["author"]) == ("访袁", "谢枋得")


def test_objects_by_name_are_records_too() -> None:
    data = {"version": "1", "poems": {"a": {"text": "甲"}, "b": {"text": "乙"}, "c": 3}}
    assert [r["text"] for _, r in read(json.dumps(data))] == ["甲", "乙"]


def test_an_object_of_settings_holds_no_document() -> None:
    for data, why in (
        ('{"name": "docs", "scripts": {"dev": "vite"}, "x": [{"y": 1}]}', "'text', only name, scripts, x"),
        ('[{"name": "王", "city": "京"}, {"name": "李"}]', "no field 'text', only name, city"),
        ('{"问": "甲", "答": "乙"}', "only 问, 答"),
        ('{\n// a remark\n"a": 1}', "no JSON in line 1: Expecting property name"),
        ("[1, 2]", "no object in it"),
    ):
        ((_, found),) = read(data)
        assert isinstance(found, Nothing) and why in found
    assert read("[]") == read("{}") == read("") == []
    assert len(read('{"问": "甲", "答": "乙"}', pair=("问", "答"))) == 1


def test_beside_a_record_what_is_none_is_refused_in_its_place() -> None:
    found = read('[{"x": [1]},\n5,\n{"text": "甲"},\n{"x": 2}]')
    assert found == [(1, {"x": None}), (2, 5), (3, {"text": "甲"}), (4, {"x": None})]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ('[{"text": "甲"},\n{"text": "乙', "no JSON from here on, so the rest is not read: Unterminated"),
        ('[{"text": "甲"},\n{"text": "乙"}\n', "the array is not closed"),
        ('[{"text": "甲"},\n{text: "乙"}]', "Expecting property name"),
        ('[{"text": "甲"},\n' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_what_breaks_off_is_read_up_to_there(data: str, why: str) -> None:
    *found, (line, last) = read(data, 1000)
    assert found[0] == (1, {"text": "甲"}) and isinstance(last, Bad) and why in last and line >= 2


RECORD = '{"text": "甲", "n": -12.5e-7, "is": true, "no": null, "escaped": "\\u4e00"}'


@pytest.mark.parametrize("data", [f"[{RECORD}, {RECORD}]", f'{{"data": [{RECORD}]}}', f"[{RECORD}]"])
def test_a_file_that_breaks_off_is_told_from_one_that_is_no_json(data: str) -> None:
    """Wherever it is cut: in a record, a word or a string; also before its first record is whole."""
    for end in range(2, len(data)):
        *_, (_, last) = read(data[:end])
        assert isinstance(last, Bad) and last.is_torn, data[:end]
    for other in (
        data.replace("-12.5e-7", "!"),
        data.replace(", ", ", // remark\n"),
        data.replace("}", ",}"),
    ):
        *_, (_, last) = read(other)
        assert not getattr(last, "is_torn", False), other


def test_lines_of_json_are_told_from_one_value() -> None:
    assert are_json_lines(b'\n{"a": 1}\n{"a": 2}\n') and are_json_lines(b'{"a": 1}\n{"a": bro')
    assert not are_json_lines(b'{"a": 1}\n') and not are_json_lines(b'[{"a": 1},\n{"a": 2}]')
    assert not are_json_lines(b'{\n"a": 1\n}\n') and not are_json_lines(b"")
