"""Strings of a benchmark's records, however the file holds them, and none of a length that has no bound."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.common.errors import DataError
from yanmo.curate.config import CurateOptions
from yanmo.curate.sources.listing import Source, digest_files, find_files
from yanmo.curate.split.benchmark_files import _strings, benchmark_texts
from yanmo.curate.text.record_rules import record_rules
from yanmo.store.file_store import FileStore

LIMIT = 1 << 20


def source_at(path: Path) -> Source:
    found = find_files(str(path), "--benchmarks")
    (source,) = digest_files(FileStore(path.parent / "store"), found)
    return source


def texts_of(path: Path, run_length: int = 1) -> list[str]:
    return benchmark_texts([source_at(path)], run_length, LIMIT, record_rules(CurateOptions(sources="x")))


def as_jsonl(texts: list[str]) -> bytes:
    return "\n".join(json.dumps({"question": text}, ensure_ascii=False) for text in texts).encode()


def as_csv(texts: list[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(["", text] for text in texts)
    return out.getvalue().encode()


def as_parquet(texts: list[str]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"choices": [[text, "x"] for text in texts]}), out)
    return out.getvalue()


FORMS: dict[str, Callable[[list[str]], bytes]] = {
    "jsonl": as_jsonl,
    "txt": lambda texts: "\n\n".join(texts).encode(),
    "csv": as_csv,
    "csv.gz": lambda texts: gzip.compress(as_csv(texts)),
    "parquet": as_parquet,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("long_one", [0, 7, 19])
def test_a_record_without_bound_is_refused_by_its_number(tmp_path: Path, form: str, long_one: int) -> None:
    """A line was left out without a word; a Parquet row of 90 MB took 1.3 GB."""
    path = tmp_path / f"b.{form}"
    texts = [f"春江潮水{n}" + ("长" * 3 * LIMIT if n == long_one else "") for n in range(20)]
    path.write_bytes(FORMS[form](texts))
    number = long_one * (2 if form == "txt" else 1) + 1
    with pytest.raises(DataError, match=rf"b\.{form}:{number}: (a record of more|expected a row .*: long)"):
        texts_of(path)
    path.write_bytes(FORMS[form]([text[:20] for text in texts]))
    assert len(texts_of(path, run_length=4)) == 20


@pytest.mark.parametrize("form", ["csv", "tsv"])
@pytest.mark.parametrize("odd", ['"春眠"不觉晓', '春眠"不觉晓', '"春眠不觉晓', '"春眠\n不觉"晓'])
def test_the_text_of_a_row_with_wrong_quotes_is_compared(tmp_path: Path, form: str, odd: str) -> None:
    between = {"csv": ",", "tsv": "\t"}[form]
    rows = [["问", "答"], ["白日依山尽", "甲"], [odd, "乙"], ["黄河入海流", "丙"], ["欲穷千里目", "丁"]]
    (tmp_path / f"b.{form}").write_text("\n".join(map(between.join, rows)), encoding="utf-8")
    texts = texts_of(tmp_path / f"b.{form}")
    for wanted in ("白日依山尽", "春眠不觉晓", "黄河入海流", "欲穷千里目"):
        assert any(wanted in text for text in texts), texts


def test_strings_come_in_the_order_of_a_record_however_deep_they_lie() -> None:
    assert list(_strings({"a": ["甲", {"b": "乙", "c": 3}], "d": None, "e": "丙"})) == ["甲", "乙", "丙"]
    deep: list[object] = ["明月"]
    for _ in range(5000):  # deeper than the stack
        deep = [deep]
    assert list(_strings(deep)) == ["明月"]
