from __future__ import annotations

import json
import math
import re
from typing import Any

import pyarrow as pa
import pytest

from yanmo.common.errors import UsageError
from yanmo.curate.config import CurateOptions
from yanmo.curate.sources.batches import Batch
from yanmo.curate.sources.entries import NO_SETTINGS, Fields, Settings, read_entries
from yanmo.curate.sources.listing import Source
from yanmo.curate.sources.parsing import PLAIN, parse, without_genre


def fields(**changes: Any) -> Fields:
    values: dict[str, Any] = {
        name: name for name in ("text", "title", "author", "genre", "source", "license")
    }
    values |= {"labels": ("dynasty",), "default_genre": ""}
    return Fields(**(values | changes))


def batch(
    data: Any,
    form: str = "jsonl",
    first: int = 1,
    too_long: tuple[int, ...] = (),
    settings: Settings = NO_SETTINGS,
) -> Batch:
    source = Source(
        uri=f"file:///x/some.{form}", name=f"some.{form}", form=form, compression="", bytes=1, version="1",
        sha256="0", settings=settings,
    )  # fmt: skip
    return Batch(source=source, first=first, data=data, too_long=too_long)


def test_a_document_keeps_what_its_record_says() -> None:
    line = (
        '{"text":"天地","genre":"shi","title":" 行營\\n病中 ","author":"劉商","dynasty":"唐","source":"a/b"}'
    )
    (document,), bad = parse(batch(line.encode()), fields())
    assert not bad
    assert (document.line, document.text, document.genre) == (1, "天地", "诗")
    assert (document.title, document.author, document.source) == ("行營 病中", "劉商", "a/b")
    assert (document.labels, document.license) == ([("dynasty", "唐")], "unknown")


def test_source_falls_back_to_the_file_and_license_to_the_source() -> None:
    lines = (
        '{"text":"甲","genre":"诗"}\n{"text":"乙","genre":"诗","source":"kanripo/x"}\n'
        '{"text":"丙","genre":"诗","source":"kanripo/x","license":"CC0"}\n'
    )
    documents, _ = parse(batch(lines.encode()), fields())
    assert [(d.source, d.license) for d in documents] == [
        ("some.jsonl", "unknown"),
        ("kanripo/x", "CC-BY-SA-4.0"),
        ("kanripo/x", "CC0"),
    ]


def test_each_kind_of_malformed_line_is_named_with_its_number() -> None:
    lines = [
        b'{"text":"good","genre":"x"}',
        b'{"text": "cut',
        b"",
        b"[1, 2]",
        b'{"genre":"x"}',
        b'{"text":5,"genre":"x"}',
        b'{"text":"no genre"}',
        b'{"text":"\xff\xfe","genre":"x"}',
        b'{"text":"\\ud800","genre":"x"}',
        b'{"text":null,"genre":"x"}',
    ]
    documents, bad = parse(batch(b"\n".join(lines), first=100, too_long=(99,)), fields())
    assert [d.line for d in documents] == [100]
    assert [m.line for m in bad] == [99, 101, 103, 104, 105, 106, 107, 108, 109]
    assert str(bad[0]) == "some.jsonl:99: longer than 64 MiB (split it)"
    assert "not JSON" in bad[1].why and "not JSON" in bad[6].why and "not JSON" in bad[7].why
    assert bad[2].why == "a JSON array; expected one object per line (jq -c '.[]' OLD > NEW.jsonl)"
    assert bad[3].why.startswith("no field 'text', only genre: name the text's with --text-field")
    assert bad[8].why == "no field 'text'"
    assert bad[4].why == "int, expected text, in field 'text'"
    assert "--default-genre" in bad[5].why


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'[\n{"text": "x"},\n{"text": "y"}\n]', "a JSON array over several lines; .*jq -c '.\\[\\]' OLD"),
        (b'  {\n"text": "x"\n}', "a JSON object over several lines; .*jq -c . OLD"),
        (b'[{"text": "x"}]', "a JSON array; expected one object per line"),
        (b"5", "int; expected a JSON object"),
        (b"true", "true; expected a JSON object"),
    ],
)
def test_json_that_is_not_one_object_per_line_says_how_to_make_it_so(data: bytes, why: str) -> None:
    documents, bad = parse(batch(data), fields())
    assert not documents and re.match(why, bad[0].why)


@pytest.mark.parametrize("name", ["genre", "title", "author", "source", "license", "dynasty"])
@pytest.mark.parametrize(
    ("value", "found"),
    [('["a", "b"]', "list"), ('{"a": 1}', "dict"), ("[]", "list"), ("true", "true"), ("false", "false")],
)
def test_a_field_that_is_no_text_makes_its_record_malformed(name: str, value: str, found: str) -> None:
    line = f'{{"text":"甲","genre":"诗","{name}":{value}}}'.encode()
    documents, bad = parse(batch(line), fields(default_genre="wen"))
    assert not documents and [m.why for m in bad] == [f"{found}, expected text, in field {name!r}"]


def test_numbers_are_text_and_nothing_is_nothing() -> None:
    rows = {"text": ["甲", "乙"], "genre": ["诗", "诗"], "title": [5, None], "author": [2.5, math.nan]}
    documents, bad = parse(batch(pa.RecordBatch.from_pydict(rows), "parquet"), fields())
    assert [(d.title, d.author) for d in documents] == [("5", "2.5"), ("", "")] and not bad


@pytest.mark.parametrize("genre", ["mean", " all ", "*", "\x1b[31m诗", "诗\u202e", "诗\u200b", "诗" * 101])
def test_what_cannot_name_a_genre_is_refused_wherever_it_is_said(genre: str) -> None:
    line = json.dumps({"text": "甲", "genre": genre}).encode()
    documents, bad = parse(batch(line), fields())
    assert not documents and len(bad) == 1 and bad[0].why.startswith("no genre: ")
    assert bad[0].why.isprintable() and len(bad[0].why) < 300
    with pytest.raises(UsageError, match="--default-genre: "):
        CurateOptions(sources="x.txt", default_genre=genre)
    with pytest.raises(UsageError, match=r"x.txt;.*: no genre: "):
        read_entries(f"x.txt;genre={genre.strip()}")


def test_text_files_give_a_document_per_block_with_its_first_line() -> None:
    text = "\n甲一\n甲二\n\n\n 乙一\r\n\r\n丙一".encode() + b"\n \t\n\xff\n"
    documents, bad = parse(batch(text, "txt", first=10), fields(default_genre="wen"))
    assert [(d.line, d.text.split()) for d in documents] == [
        (11, ["甲一", "甲二"]),
        (15, ["乙一"]),
        (17, ["丙一"]),
    ]
    assert {d.genre for d in documents} == {"文"}
    assert [(m.line, m.why) for m in bad] == [(19, "not UTF-8: invalid start byte")]


GENRELESS: list[tuple[Any, str, bool | None]] = [
    (b'{"text": "x"}\n{"text": "y", "genre": "shi"}', "jsonl", True),
    (b'\n{"text": "x", "genre": " "}', "jsonl", True),
    (b'{"text": "x", "genre": "shi"}\n{"text": "y"}', "jsonl", False),
    (b'{cut\n{"text": "x"}', "jsonl", True),
    (
        b'{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}',
        "jsonl",
        False,
    ),
    (b"", "jsonl", None),  # no document yet
    ("甲一\n\n乙一".encode(), "txt", True),
    (b'{"text": null}\n{"meta": 1}\n{"text": "x"}', "jsonl", True),
    (b'{"text": null}\n{"text": "x", "genre": "shi"}\n{"text": "y"}', "jsonl", False),
    (pa.RecordBatch.from_pydict({"text": ["甲"]}), "parquet", True),
    (pa.RecordBatch.from_pydict({"text": ["甲"], "genre": ["词"]}), "parquet", False),
]


@pytest.mark.parametrize(("data", "form", "expected"), GENRELESS)
def test_a_file_knows_no_genres_where_its_first_document_names_none(
    data: Any, form: str, expected: bool | None
) -> None:
    assert without_genre(batch(data, form), fields()) is expected
    assert not without_genre(batch(data, form), fields(default_genre="wen"))
    assert not without_genre(batch(data, form, settings=Settings((("genre", "诗"),))), fields())


def test_documents_without_a_genre_of_their_own_get_the_plain_one_only_in_such_a_file() -> None:
    lines = b'{"text": "x"}\n{"text": "y", "genre": "shi"}'
    documents, bad = parse(batch(lines), fields(genre_unknown=True))
    assert [d.genre for d in documents] == [PLAIN, "诗"] and not bad
    documents, bad = parse(batch(lines), fields())
    assert [d.genre for d in documents] == ["诗"] and [m.line for m in bad] == [1]


def test_blank_lines_where_a_file_was_cut_are_no_part_of_a_text() -> None:
    whole, _ = parse(batch("甲一\r\n\r\n\r\n \r\n  乙一\r\n".encode(), "txt"), fields(default_genre="wen"))
    part, _ = parse(batch("\r\n \r\n  乙一\r\n".encode(), "txt", first=3), fields(default_genre="wen"))
    assert [(d.line, d.text) for d in part] == [(d.line, d.text) for d in whole[1:]]


def test_bytes_that_are_no_record_are_counted() -> None:
    _, bad = parse(batch(b'{"text": "x", "genre": "shi"}\n[1, 2]\n{cut\n{"no": 1}'), fields())
    assert [(m.line, m.unread) for m in bad] == [(2, 6), (3, 4), (4, 0)]
