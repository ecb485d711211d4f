"""From a batch of raw bytes to raw documents; what cannot be one is reported with its line number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from yanmo.common.records import GENRE_ALIASES
from yanmo.curate.reading import MAX_RECORD_BYTES, Batch

_BLANK_LINES = re.compile(rb"\n[ \t\r\f\v\n]*\n")


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Where a record keeps what, and what stands in for fields it lacks."""

    text: str
    title: str
    author: str
    genre: str
    source: str
    license: str
    labels: tuple[str, ...]
    default_genre: str
    licenses: tuple[tuple[str, str], ...]
    """(beginning of the source, licence)"""

    @property
    def columns(self) -> list[str]:
        """Every field's name, the text's first."""
        return [self.text, self.title, self.author, self.genre, self.source, self.license, *self.labels]

    def license_of(self, source: str) -> str:
        """The licence of a document that names none, by its source."""
        for start, name in self.licenses:
            if source.startswith(start):
                return name
        return "unknown"


@dataclass(slots=True)
class RawDocument:
    """A document as it came, before cleaning."""

    line: int
    text: str
    title: str
    author: str
    genre: str
    source: str
    license: str
    labels: list[tuple[str, str]]


@dataclass(frozen=True)
class Malformed:
    """A line (block, row) that is no document, and why."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


def genre_name(label: str) -> str:
    """A genre's label: the ASCII aliases (shi, ci, wen, fu ...) spelled out."""
    return GENRE_ALIASES.get(label.strip(), label.strip())


def parse(batch: Batch, fields: Fields) -> tuple[list[RawDocument], list[Malformed]]:
    """The documents of a batch and what was malformed in it."""
    name = batch.source.name
    too_long = f"longer than {MAX_RECORD_BYTES >> 20} MiB"
    bad = [Malformed(name, line, too_long) for line in batch.too_long]
    documents = []
    for line, record in _RECORDS[batch.source.form](batch, fields):
        found = record if isinstance(record, str) else _document(line, record, fields, name)
        if isinstance(found, str):
            bad.append(Malformed(name, line, found))
        else:
            documents.append(found)
    return documents, bad


def _document(line: int, record: Mapping[str, Any], fields: Fields, file: str) -> RawDocument | str:
    """The document in `record`, or in words why there is none."""
    text = record.get(fields.text)
    if not isinstance(text, str):
        what = "no" if text is None else f"{type(text).__name__}, expected text, in"
        return f"{what} field {fields.text!r}"
    genre = _string(record.get(fields.genre)) or fields.default_genre
    if not genre:
        return f"no field {fields.genre!r} and no --default-genre"
    source = _string(record.get(fields.source)) or file
    return RawDocument(
        line=line,
        text=text,
        title=_string(record.get(fields.title)),
        author=_string(record.get(fields.author)),
        genre=GENRE_ALIASES.get(genre, genre),
        source=source,
        license=_string(record.get(fields.license)) or fields.license_of(source),
        labels=[(name, value) for name in fields.labels if (value := _string(record.get(name)))],
    )


def _string(value: Any) -> str:
    """A scalar field as text, white space at its ends and line breaks taken out."""
    if isinstance(value, str):
        return " ".join(value.split())
    return str(value) if isinstance(value, (int, float)) else ""


def _json_records(batch: Batch, fields: Fields) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for line, data in enumerate(batch.data.split(b"\n"), batch.first):
        if not data or data.isspace():
            continue
        try:
            record = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            yield line, f"not JSON in UTF-8: {error}"
            continue
        yield line, record if isinstance(record, dict) else "not a JSON object"


def _text_records(batch: Batch, fields: Fields) -> Iterator[tuple[int, dict[str, Any] | str]]:
    line, start = batch.first, 0
    for end, after in _separators(batch.data):
        block = batch.data[start:end]
        if block and not block.isspace():
            first = line + block[: len(block) - len(block.lstrip())].count(b"\n")
            try:
                yield first, {fields.text: block.decode()}
            except UnicodeDecodeError as error:
                yield first, f"not UTF-8: {error.reason}"
        line += batch.data.count(b"\n", start, after)
        start = after


def _separators(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each run of blank lines begins and ends, and at last the end of `data`."""
    yield from (found.span() for found in _BLANK_LINES.finditer(data))
    yield len(data), len(data)


def _row_records(batch: Batch, fields: Fields) -> Iterator[tuple[int, dict[str, Any] | str]]:
    rows: pa.RecordBatch = batch.data
    yield from enumerate(rows.to_pylist(), batch.first)


_RECORDS = {"jsonl": _json_records, "txt": _text_records, "parquet": _row_records}
