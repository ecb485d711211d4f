"""What one format forgives, all forgive: a table of inputs by formats, with one answer a row."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.curate.config import CurateOptions
from yanmo.curate.sources.batches import read_batches
from yanmo.curate.sources.listing import digest_files, find_files
from yanmo.curate.sources.parsing import parse
from yanmo.curate.text.record_rules import record_rules
from yanmo.store.file_store import FileStore

A, B = "白日依山尽，黄河入海流。\n欲穷千里目，更上一层楼。", "春眠不觉晓，处处闻啼鸟，夜来风雨声。"
ASKED, SAID = "这首诗是谁写的？", "是王之涣写的，\n他是唐代的诗人。"
CHAT = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}]
Record = dict[str, Any]


def json_lines(records: list[Record]) -> bytes:
    lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records) or "\n"
    return lines.encode(errors="surrogatepass")


def json_array(records: list[Record]) -> bytes:
    return json.dumps(records, ensure_ascii=False, indent=1).encode(errors="surrogatepass")


def nested(records: list[Record]) -> bytes:
    return json.dumps({"version": 3, "of": {"data": records}}).encode()


def table(delimiter: str) -> Callable[[list[Record]], bytes]:
    def write(records: list[Record]) -> bytes:
        names = list(dict.fromkeys(name for r in records for name in r)) or ["text"]
        out = io.StringIO()
        rows = csv.writer(out, delimiter=delimiter)
        rows.writerow(names)
        rows.writerows([cell(r.get(name)) for name in names] for r in records)
        return out.getvalue().encode()

    return write


def cell(value: Any) -> str:
    if isinstance(value, list):
        return json.dumps(value)
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def parquet(records: list[Record]) -> bytes:
    sink = pa.BufferOutputStream()
    names = dict.fromkeys(name for r in records for name in r)
    columns = {name: [r.get(name) for r in records] for name in names}
    pq.write_table(pa.table(columns or {"text": pa.array([], pa.string())}), sink)
    return bytes(sink.getvalue())


FORMATS: dict[str, Callable[[list[Record]], bytes]] = {
    "a.jsonl": json_lines,
    "a.ndjson.gz": lambda records: gzip.compress(json_lines(records)),
    "a.json": json_array,
    "a lines.json": json_lines,
    "a nested.JSON": nested,
    "a.parquet": parquet,
    "a.csv": table(","),
    "a semicolons.csv": table(";"),
    "a.tsv": table("\t"),
}
TABLES = {"a.csv", "a semicolons.csv", "a.tsv"}
TEXT = FORMATS.keys() - {"a.parquet", "a.ndjson.gz"}

ROWS: list[tuple[str, list[Record], list[str], int, set[str]]] = [
    # what, records, documents (chats as their turns), malformed, formats that cannot say it
    ("texts", [{"text": A}, {"text": B}], [A, B], 0, set()),
    ("quotes and marks", [{"text": f'{A}"，";\t'}, {"text": f'"{B}"'}], [f'{A}"，";\t', f'"{B}"'], 0, set()),
    ("NaN that is not read", [{"text": A, "score": math.nan}], [A], 0, set()),
    ("NaN for an author", [{"text": A, "author": math.nan}], [A], 0, set()),
    ("null for an author", [{"text": A, "author": None}, {"text": B, "author": "某"}], [A, B], 0, set()),
    ("a number for a title", [{"text": A, "title": 5}], [A], 0, set()),
    ("a list for a title", [{"text": A, "title": ["x"]}, {"text": B}], [B], 1, TABLES),
    ("a list that is not read", [{"text": A, "tags": ["x", "y"]}], [A], 0, set()),
    ("bytes that are not read", [{"text": A, "image": b"\xff\xd8\xff"}], [A], 0, set(TEXT) | {"a.ndjson.gz"}),
    ("bytes for a text", [{"text": A.encode()}], [A], 0, set(TEXT) | {"a.ndjson.gz"}),
    ("null beside messages", [{"text": None, "messages": CHAT}, {"text": B}], [ASKED + SAID, B], 0, set()),
    ("blank beside messages", [{"text": " ", "messages": CHAT}, {"text": B}], [ASKED + SAID, B], 0, set()),
    ("NaN beside a pair", [{"text": math.nan, "question": ASKED, "answer": SAID}], [ASKED + SAID], 0, set()),
    ("messages in JSON", [{"messages": json.dumps(CHAT)}], [ASKED + SAID], 0, set()),
    ("an empty answer", [{"question": ASKED, "answer": ""}, {"text": B}], [B], 1, set()),
    ("a list of lines", [{"paragraphs": A.split("\n")}, {"text": B}], [A, B], 0, TABLES),
    ("a list under the text's name", [{"text": A.split("\n")}], [A], 0, TABLES),
    (
        "MNBVC's paragraphs",
        [{"文件名": "x", "段落": [{"行号": n, "内容": t} for n, t in enumerate(A.split("\n"))]}],
        [A],
        0,
        TABLES,
    ),
    ("a text and a chat", [{"text": A, "messages": CHAT}], [A], 0, set()),
    (
        "a text beside bytes under a chat's name",
        [{"text": A, "messages": b"\xff\xd8\xff"}],
        [A],
        0,
        set(TEXT) | {"a.ndjson.gz"},
    ),
    ("a text and a list", [{"text": B, "paragraphs": ["x"]}], [B], 0, TABLES),
    ("a number for a text", [{"text": 5}], [], 1, TABLES),
    ("no text", [{"words": A}, {"words": B}], [], 2, {"a.json", "a nested.JSON"}),
    ("a text under a usual name", [{"content": A}, {"content": B}], [A, B], 0, set()),
    ("a text beside a usual name", [{"text": A, "review": B}], [A], 0, set()),
    ("reviews with labels", [{"label": 1, "review": A}], [A], 0, set()),
    ("a question that is asked", [{"title": "x", "ask": ASKED, "answer": SAID}], [ASKED + SAID], 0, set()),
    ("a null text", [{"text": None, "title": "x"}, {"text": B}], [B], 1, {*TABLES, "a nested.JSON"}),
    ("half of a character", [{"text": "\ud800"}, {"text": B}], [B], 1, {*TABLES, "a.parquet"}),
    ("a number without end", [{"text": A, "n": 2**80}], [A], 0, {"a.parquet"}),
    ("nothing", [], [], 0, set()),
]
CASES = [(name, *row[:4]) for row in ROWS for name in FORMATS if name not in row[4]]


def answer(path: Path) -> tuple[list[str], int]:
    """The texts (of chats the turns, one behind the other), and how many records were malformed."""
    rules = record_rules(CurateOptions(sources="x", default_genre="文"))
    (source,) = digest_files(FileStore(path.parent / "store"), find_files(str(path)))
    documents, malformed = [], []
    for batch in read_batches(source, rules.fields.columns, 1 << 20, lambda count: None, rules.reading):
        found, bad = parse(batch, rules.fields)
        documents += ["".join(turn.text for turn in d.turns) or d.text for d in found]
        malformed += bad
    assert all(m.why.isprintable() and m.line > 0 for m in malformed)
    return documents, len(malformed)


@pytest.mark.parametrize(
    ("name", "what", "records", "documents", "malformed"), CASES, ids=[f"{c[1]}-{c[0]}" for c in CASES]
)
def test_each_format_gives_the_same_answer(
    tmp_path: Path, name: str, what: str, records: list[Record], documents: list[str], malformed: int
) -> None:
    (tmp_path / name).write_bytes(FORMATS[name](records))
    assert answer(tmp_path / name) == (documents, malformed)


@pytest.mark.parametrize("name", sorted(TEXT))
@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "utf-16"])
def test_any_encoding_of_any_format_and_files_put_together_are_read(
    tmp_path: Path, name: str, encoding: str
) -> None:
    once, again = (FORMATS[name]([{"text": text, "n": 1}] * 9).decode() for text in (A, B))
    (tmp_path / name).write_bytes(once.encode(encoding) + again.encode(encoding))
    assert answer(tmp_path / name) == ([A] * 9 + [B] * 9, 0)


@pytest.mark.parametrize("name", sorted(TEXT))
def test_a_mark_before_each_record_is_no_text(tmp_path: Path, name: str) -> None:
    text = FORMATS[name]([{"text": A}, {"text": B}]).decode()
    (tmp_path / name).write_bytes(codecs.BOM_UTF8 + text.replace("\n{", "\n\ufeff{").encode())
    assert answer(tmp_path / name) == ([A, B], 0)


@pytest.mark.parametrize("name", sorted(TEXT))
def test_line_ends_of_windows_are_line_ends(tmp_path: Path, name: str) -> None:
    text = FORMATS[name]([{"text": B}, {"text": SAID}]).decode().replace("\r\n", "\n")
    (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode())
    found, malformed = answer(tmp_path / name)
    assert ([t.replace("\r", "") for t in found], malformed) == ([B, SAID], 0)
