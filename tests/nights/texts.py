"""The texts of the nights: real ones from the bundled corpus, those held back, and poisoned files.

A text in 64 is held back by its id: no night's file ever has it, so that a model is judged on it by texts
that its store has never seen.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard
from torture.place import Place
from torture.stages import ROOT

from nights.plan import COPY, EMPTY, MOJIBAKE, Shard

CORPUS = ROOT / "corpus/small.jsonl.zst"
_HELD_BACK = 64
_SHORT, _MOST_FRESH = 60, 120
"""Characters of a text that is scored at most, and how many texts."""


@functools.cache
def _rows() -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    """The pool, and what is held back."""
    given, held = [], []
    with CORPUS.open("rb") as packed, zstandard.ZstdDecompressor().stream_reader(packed) as file:
        for line in io.TextIOWrapper(file, encoding="utf-8"):
            row = json.loads(line)
            number = int(hashlib.sha256(row["id"].encode()).hexdigest(), 16)
            (held if number % _HELD_BACK == 0 else given).append(row)
    return tuple(given), tuple(held)


@functools.cache
def fresh_texts() -> list[str]:
    """Short texts that were held back, always the same, in simplified characters as in a store."""
    return [simplified(row["text"]) for row in _rows()[1] if len(row["text"]) <= _SHORT][:_MOST_FRESH]


def simplified(text: str) -> str:
    """By OpenCC itself."""
    return str(_converter().convert(text))


@functools.cache
def _converter() -> Any:
    import opencc

    return opencc.OpenCC("t2s")


def bytes_of(shard: Shard, evaluation: list[dict[str, Any]]) -> bytes:
    """The file's content; `evaluation`: the channel's pinned texts, which COPY copies."""
    if shard.kind == EMPTY:
        return b""
    if shard.kind == COPY:
        rows = [{"genre": r["genre"], "title": r["title"], "text": r["text"]} for r in evaluation]
    else:
        pool = _rows()[0]
        rows = [pool[n % len(pool)] for n in range(shard.begin, shard.begin + shard.count)]
    if shard.kind == MOJIBAKE:
        rows = [{**row, "text": garbled(row["text"], number)} for number, row in enumerate(rows)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def texts_in(file: bytes) -> list[str]:
    """The texts of such a file. Garbled ones hold NEL, at which str.splitlines would cut a row."""
    return [str(json.loads(row)["text"]) for row in file.split(b"\n") if row]


def garbled(text: str, number: int) -> str:
    """The text as a program shows it that takes its bytes for another encoding's."""
    written, read = (("utf-8", "gb18030"), ("gb18030", "latin-1"), ("utf-8", "latin-1"))[number % 3]
    return text.encode(written).decode(read, "replace")


def stored_texts(place: Place, output: str, split: str) -> list[dict[str, Any]]:
    """The documents of `split` in an output (`cas/<stage>/<key>`), read with pyarrow alone."""
    names = [n for n in place.names() if n.startswith(f"{output}/") and f"/{split}-" in n]
    return [row for name in names for row in pq.read_table(io.BytesIO(place.read(name))).to_pylist()]


def folded(text: str) -> str:
    """Simplified and without white space, so that a text is known again after normalization."""
    return "".join(simplified(text).split())


def write_files(files: dict[str, bytes], folder: Path) -> None:
    """Make `folder` hold exactly these files; what has not changed is not touched."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
