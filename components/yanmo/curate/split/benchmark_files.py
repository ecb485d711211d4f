"""The texts of benchmarks that train must not contain: every string of every record, normalized."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError, StorageError, in_words
from yanmo.curate.sources.batches import Reading, read_batches, utf8_chunks
from yanmo.curate.sources.listing import Source
from yanmo.curate.sources.raw_files import open_file
from yanmo.curate.text.normalize import normalize

_BATCH_BYTES = 8 << 20


def benchmark_texts(sources: Iterable[Source], run_length: int) -> list[str]:
    """Every string of the files, in text form classical-1; whatever the names of fields.

    A question and its answers are separate texts, so that runs are searched for inside each of them.

    Args:
        run_length: shorter strings cannot hold a run, and are left out.

    Raises:
        DataError: a record cannot be read, or no string is long enough.
    """
    sources = list(sources)
    texts = [text for source in sources for text in _strings_of(source) if len(text) >= run_length]
    if not texts and sources:
        names = ", ".join(source.name for source in sources[:5])
        raise DataError(
            f"--benchmarks: no string of {run_length} characters or more in {names}; look whether they "
            "are the right files"
        )
    return normalize(texts).texts


def _strings_of(source: Source) -> Iterator[str]:
    if source.form == "parquet":
        yield from _parquet_strings(source)
        return
    if source.form in _DELIMITERS:
        yield from _cells(source)
        return
    for batch in read_batches(source, [], _BATCH_BYTES, lambda _: None, Reading()):
        for line, data in enumerate(batch.data.split(b"\n"), batch.first):
            if data and not data.isspace():
                yield from _line_strings(source, line, data)


def _line_strings(source: Source, line: int, data: bytes) -> Iterator[str]:
    try:
        value = orjson.loads(data) if source.form == "jsonl" else data.decode()
    except ValueError as error:
        expected = "JSON in UTF-8" if source.form == "jsonl" else "UTF-8"
        raise DataError(
            f"--benchmarks {source.shown}:{line}: expected {expected}: {in_words(error)}"
        ) from error
    yield from _strings(value)


_DELIMITERS = {"csv": ",", "tsv": "\t"}
_MOST_BYTES = 1 << 30
"""Largest table: cells may go over many lines, so a table is read whole, and benchmarks are small."""


def _cells(source: Source) -> Iterator[str]:
    data = bytearray()
    for chunk in utf8_chunks(source, lambda _: None)[1]:
        data += chunk
        if len(data) > _MOST_BYTES:
            raise DataError(f"--benchmarks {source.shown}: larger than 1 GiB; split it into smaller files")
    csv.field_size_limit(_MOST_BYTES)
    try:
        lines = io.StringIO(data.decode(), newline="")
        for row in csv.reader(lines, delimiter=_DELIMITERS[source.form]):
            yield from row
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"--benchmarks {source.shown}: expected a .{source.form} table in UTF-8: {in_words(error)}"
        ) from error


def _parquet_strings(source: Source) -> Iterator[str]:
    try:
        with open_file(source.uri) as opened, pq.ParquetFile(opened) as file:
            for batch in file.iter_batches(1024):
                yield from _strings(batch.to_pylist())
    except StorageError:
        raise  # the server is away: try again later
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"--benchmarks {source.shown}: not a readable Parquet file: {in_words(error)}; fetch it again"
        ) from error


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]  # no recursion: JSON may be nested deeper than Python's stack
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += reversed(one.values())
        elif isinstance(one, (list, tuple)):
            waiting += reversed(one)
