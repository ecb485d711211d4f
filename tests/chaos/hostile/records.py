"""Odd records of JSONL files, and Parquet files whose columns are of odd types."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.hostile.damages import Bytes

RECORDS: dict[str, Any] = {
    "null": None,
    "number": 5,
    "text": "春",
    "empty object": {},
    "text null": {"text": None, "genre": "诗"},
    "text number": {"text": 5, "genre": "诗"},
    "text object": {"text": {"a": "春"}, "genre": "诗"},
    "text empty": {"text": "", "genre": "诗"},
    "text blank": {"text": " \n ", "genre": "诗"},
    "no text": {"txt": "春", "genre": "诗"},
    "no genre": {"text": "春江潮水连海平，海上明月共潮生。"},
    "genre list": {"genre": ["诗"]},
    "genre object": {"genre": {"a": 1}},
    "genre long": {"genre": "诗" * 5000},
    "genre steering": {"genre": "a\x1b[31m\u202eb"},
    "genre mean": {"genre": "mean"},
    "genre path": {"genre": "../../etc"},
    "genre separators": {"genre": "a=b,c:d;e|f"},
    "genre all": {"genre": "all"},
    "genre star": {"genre": "*"},
    "genre tag": {"genre": "<|bos|>"},
    "title list": {"title": ["a"]},
    "author nan": {"author": float("nan")},
    "source object": {"source": {}},
    "label list": {"dynasty": ["唐"]},
    "title long": {"title": "题" * 100_000},
    "title steering": {"title": "a\x1b[2Jb\u202e"},
    "text half a character": {"text": "春\ud800秋" * 10},
    "text NUL": {"text": "春\0秋" * 20},
    "text specials": {"text": "<|bos|>春<|eos|>" * 10},
    "text steering": {"text": "\u202e春\x07秋\x1b[31m" * 20},
    "text private": {"text": "\ue000\ue001" * 50},
    "text long": {"text": "长" * 3_000_000},
    "text one line": {"text": "春" * 900_000},
    "text many lines": {"text": "春\n" * 400_000},
    "text emoji": {"text": "🙂👨‍👩‍👧" * 50},
    "text combining": {"text": "e\u0301" * 100_000},
    "chat of nothing": {"messages": []},
    "chat without a question": {"messages": [{"role": "assistant", "content": "好"}]},
    "chat without an answer": {"messages": [{"role": "user", "content": "好"}]},
    "chat of lists": {"messages": [["user", "好"], ["assistant", "好"]]},
    "chat content parts": {
        "messages": [{"role": "user", "content": [{"type": "image"}]}, {"role": "assistant", "content": "好"}]
    },
    "chat of two answers": {
        "messages": [
            {"role": "user", "content": "好"},
            {"role": "assistant", "content": "甲"},
            {"role": "assistant", "content": "乙"},
        ]
    },
    "chat long": {
        "messages": [{"role": "user", "content": "问"}, {"role": "assistant", "content": "答"}] * 20_000
    },
}
"""Label -> a record of a JSONL file; what is about one field is put over a good record."""
LINES: dict[str, bytes] = {
    "NaN": '{"text": NaN, "genre": "诗"}'.encode(),
    "infinity": '{"text": "春", "genre": Infinity}'.encode(),
    "huge number": b'{"text": "x", "genre": 1e999}',
    "long number": b'{"genre": ' + b"9" * 100_000 + b"}",
    "same key twice": '{"text": "春江花月夜春江花月夜", "text": 5, "genre": "诗"}'.encode(),
    "deep": b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "long key": b'{"' + b"k" * 3_000_000 + b'": 1}',
    "single quotes": "{'text': '春'}".encode(),
    "comma at the end": '{"text": "春",}'.encode(),
    "comment": '// x\n{"text": "春"}'.encode(),
    "unfinished": '{"text": "春'.encode(),
    "two objects": b'{"a": 1} {"b": 2}',
    "NUL after it": b'{"text": "x"}\0',
    "half a character": b'{"text": "\\ud800", "genre": "x"}',
    "many keys": ("{" + ",".join(f'"k{n}": {n}' for n in range(200_000)) + "}").encode(),
}
"""Label -> a line that may be no JSON."""


def with_record(data: bytes, record: Any, *, all_of_them: bool) -> bytes:
    """A JSONL file with `record` as its first line, or laid over each line."""
    lines = data.splitlines()
    if not all_of_them:
        return b"\n".join([_line(record, lines[0]), *lines[1:]]) + b"\n"
    return b"\n".join(_line(record, line) for line in lines) + b"\n"


def _line(record: Any, good: bytes) -> bytes:
    over_it = isinstance(record, dict) and not {"text", "txt", "messages"} & record.keys() and record
    value = {**json.loads(good), **record} if over_it else record
    if isinstance(record, dict) and "messages" in record and "text" not in record:
        value = {"genre": "诗", **record}
    return json.dumps(value).encode()


def _table(data: bytes) -> pa.Table:
    rows = [json.loads(line) for line in data.splitlines()]
    return pa.Table.from_pylist(
        [{k: r.get(k) for k in ("text", "title", "author", "genre", "source")} for r in rows]
    )


def _wrote(table: pa.Table, **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **how)
    return out.getvalue()


def _typed(column: str, values: Callable[[list[str]], Any]) -> Bytes:
    def build(data: bytes, draw: random.Random) -> bytes:
        table = _table(data)
        index = table.column_names.index(column)
        return _wrote(table.set_column(index, column, values(table.column(column).to_pylist())))

    return build


def _edited(how: Callable[[pa.Table], pa.Table], **options: Any) -> Bytes:
    return lambda data, draw: _wrote(how(_table(data)), **options)


def _no_utf8(values: list[str]) -> pa.Array:
    good = pa.array([b"\xff\xfe" + v.encode() for v in values], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(good), good.buffers())


PARQUET: dict[str, Bytes] = {
    "text numbers": _typed("text", lambda v: pa.array(range(len(v)))),
    "text bytes": _typed("text", lambda v: pa.array([x.encode() for x in v], pa.binary())),
    "text lists": _typed("text", lambda v: pa.array([[x] for x in v])),
    "text structs": _typed("text", lambda v: pa.array([{"a": x} for x in v])),
    "text nulls": _typed("text", lambda v: pa.nulls(len(v), pa.string())),
    "text null type": _typed("text", lambda v: pa.nulls(len(v))),
    "text no UTF-8": _typed("text", _no_utf8),
    "text large": _typed("text", lambda v: pa.array(v, pa.large_string())),
    "text of a dictionary": _typed("text", lambda v: pa.array(v).dictionary_encode()),
    "genre lists": _typed("genre", lambda v: pa.array([[x] for x in v])),
    "genre bytes": _typed("genre", lambda v: pa.array([x.encode() for x in v], pa.binary())),
    "title nan": _typed("title", lambda v: pa.array([float("nan")] * len(v))),
    "no text": _edited(lambda t: t.drop_columns(["text"])),
    "no rows": _edited(lambda t: t.slice(0, 0)),
    "no columns": _edited(lambda t: t.select([])),
    "text twice": _edited(lambda t: t.append_column("text", t.column("genre"))),
    "columns many": _edited(
        lambda t: pa.table(
            {
                **{f"c{n}": pa.nulls(len(t)) for n in range(2000)},
                **dict(zip(t.column_names, t.columns, strict=True)),
            }
        )
    ),
    "brotli": _edited(lambda t: t, compression="brotli"),
    "version 1": _edited(lambda t: t, version="1.0"),
    "long text": _typed("text", lambda v: pa.array(["长" * 30_000_000, *v[1:]])),
    "turns": _edited(
        lambda t: t.append_column("messages", pa.array([[{"role": "user", "content": 5}]] * len(t)))
    ),
}
"""Label -> a Parquet file, from the JSONL file with the same documents."""


def as_parquet(data: bytes) -> bytes:
    """The documents of a JSONL file, as Parquet."""
    return _wrote(_table(data))
