"""The texts of benchmarks that train must not contain: every string of every record, as it is compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from yanmo.common.errors import DataError, in_words
from yanmo.curate.mapped_texts import comparable
from yanmo.curate.sources.batch import MAX_RECORD_BYTES, Bad
from yanmo.curate.sources.batches import Reading, open_parquet, read_batches, rows_at_a_time, utf8_chunks
from yanmo.curate.sources.listing import Source
from yanmo.curate.sources.tables import table_rows
from yanmo.curate.text.normalize import normalize
from yanmo.curate.text.record_rules import RecordRules

_BATCH_BYTES, _JSON = 8 << 20, ("jsonl", "json")


def benchmark_texts(
    sources: Iterable[Source], run_length: int, record_bytes: int, rules: RecordRules
) -> list[str]:
    """Return what is compared of every string of the files, whatever the names of fields.

    A question and its answers are separate texts, so that runs are searched for inside each of them.

    Args:
        run_length: shorter strings cannot hold a run, and are left out.
        record_bytes: the most that a record may have. A longer one is refused and not left out, as train
            would hold its text.

    Raises:
        DataError: a record cannot be read or is too long, or no string is long enough.
    """
    sources = list(sources)
    texts = [
        text for source in sources for text in _strings_of(source, record_bytes) if len(text) >= run_length
    ]
    if not texts and sources:
        names = ", ".join(source.name for source in sources[:5])
        raise DataError(
            f"--benchmarks: no string of {run_length} characters or more in {names}; look whether they "
            "are the right files"
        )
    return comparable(normalize(texts, rules.steps).texts, rules.form)


def _strings_of(source: Source, limit: int) -> Iterator[str]:
    if source.form == "parquet":
        yield from _parquet_strings(source, limit)
        return
    if source.form in ("csv", "tsv"):
        chunks = utf8_chunks(source, lambda _: None)[1]
        for line, cells in table_rows(source.form, chunks, limit, strict=False):  # train would hold its text
            if isinstance(cells, Bad):
                raise DataError(f"--benchmarks {source.shown}:{line}: expected a row of a table: {cells}")
            yield from cells
        return
    if source.form == "json":
        yield from _json_strings(source)
        return
    for batch in read_batches(source, [], _BATCH_BYTES, lambda _: None, Reading(max_record_bytes=limit)):
        for number in batch.too_long:
            raise _too_long(source, number, limit)
        for line, data in enumerate(batch.data.split(b"\n"), batch.first):
            if data and not data.isspace():
                yield from _line_strings(source, line, data)


def _too_long(source: Source, number: int, limit: int) -> DataError:
    return DataError(
        f"--benchmarks {source.shown}:{number}: a record of more than {limit / (1 << 20):.3g} MiB; split it, "
        "take it out, or raise --max-characters, for each of which a record may have 12 bytes"
    )


def _line_strings(source: Source, line: int, data: bytes) -> Iterator[str]:
    try:
        value = orjson.loads(data) if source.form in _JSON else data.decode()
    except ValueError as error:
        expected = "JSON in UTF-8" if source.form in _JSON else "UTF-8"
        raise DataError(
            f"--benchmarks {source.shown}:{line}: expected {expected}: {in_words(error)}"
        ) from error
    yield from _strings(value)


def _json_strings(source: Source) -> Iterator[str]:
    """Yield the strings of a file of JSON, or of one with an object on each line."""
    data = bytearray()
    for chunk in utf8_chunks(source, lambda _: None)[1]:
        data += chunk
        if len(data) > MAX_RECORD_BYTES:
            raise _too_long(source, 1, MAX_RECORD_BYTES)
    try:
        value = orjson.loads(data)
    except ValueError:
        for number, line in enumerate(bytes(data).split(b"\n"), 1):
            if line and not line.isspace():
                yield from _line_strings(source, number, line)
    else:
        yield from _strings(value)


def _parquet_strings(source: Source, limit: int) -> Iterator[str]:
    number = 0
    with open_parquet(source, f"--benchmarks {source.shown}") as file:
        for batch in file.iter_batches(rows_at_a_time(file.metadata, _BATCH_BYTES)):
            for row in range(len(batch)):
                number += 1
                if batch.slice(row, 1).nbytes > limit:
                    raise _too_long(source, number, limit)
            yield from _strings(batch.to_pylist())


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
