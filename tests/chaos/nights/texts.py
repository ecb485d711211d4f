"""The texts of the nights: real ones from the bundled corpus, and poisoned files."""

from __future__ import annotations

import functools
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard

from chaos.nights.plan import COPY, EMPTY, MOJIBAKE, Shard
from chaos.place import Place
from chaos.start import ROOT

CORPUS = ROOT / "corpus/small.jsonl.zst"


@functools.cache
def _pool() -> tuple[dict[str, Any], ...]:
    with CORPUS.open("rb") as packed, zstandard.ZstdDecompressor().stream_reader(packed) as file:
        return tuple(map(json.loads, io.TextIOWrapper(file, encoding="utf-8")))


def bytes_of(shard: Shard, evaluation: list[dict[str, Any]]) -> bytes:
    """The file's content; `evaluation`: the channel's pinned texts, which COPY copies."""
    if shard.kind == EMPTY:
        return b""
    if shard.kind == COPY:
        rows = [{"genre": r["genre"], "title": r["title"], "text": r["text"]} for r in evaluation]
    else:
        rows = [_pool()[n % len(_pool())] for n in range(shard.begin, shard.begin + shard.count)]
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


@functools.cache
def _converter() -> Any:
    import opencc

    return opencc.OpenCC("t2s")


def folded(text: str) -> str:
    """Simplified and without white space, so that a text is known again after normalization."""
    return "".join(str(_converter().convert(text)).split())


def write_files(files: dict[str, bytes], folder: Path) -> None:
    """Make `folder` hold exactly these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
