"""From a batch of raw bytes to raw documents; malformed records are reported with their line numbers."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from yanmo.common.errors import DataError
from yanmo.curate.sources.batches import AS_JSON_LINES, MAX_RECORD_BYTES, Bad, Batch
from yanmo.curate.sources.chat_layouts import GENRE as CHAT
from yanmo.curate.sources.chat_layouts import PARAGRAPHS, TEXTS, Turn, layout_of_chat, turns_of
from yanmo.curate.sources.encodings import decode_record
from yanmo.curate.sources.entries import Fields
from yanmo.curate.sources.markdown import cut_at_headings, first_heading, front_matter
from yanmo.curate.sources.text_layouts import cut_at_chapters
from yanmo.formats.genre_names import genre_problem
from yanmo.formats.records import GENRE_ALIASES
from yanmo.options.values import brief

PLAIN = "text"
"""Genre of documents in files that know no genres."""

_DATE = "date"
_NOT_FINITE = re.compile(r"\b(?:NaN|Infinity)\b")
_BLANK_LINES = re.compile(rb"\n[ \t\r\f\v\n]*\n")
_LEADING = re.compile(rb"(?:[ \t\r\f\v]*\n)*")


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
    encoding: str = "utf-8"
    """Encoding of its line, in a UTF-8 file."""
    turns: list[Turn] = field(default_factory=list)
    """Turns of a chat, whose `text` is empty until they are normalized."""
    layout: str = ""
    """The fields that a chat was read from."""
    path: str = ""
    """Its file, below the place of `--sources`."""


@dataclass(frozen=True)
class Malformed:
    """A line (block, row) that is not a document, and why."""

    file: str
    line: int
    why: str
    unread: int = 0
    """Bytes that are no record at all; 0 where one lacks something, or where `Batch.skipped` has them."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


def without_genre(batch: Batch, fields: Fields) -> bool | None:
    """Return whether the first document of a batch names no genre and is no chat; None without a document."""
    fields = fields.of_source(batch.source.settings)
    for line, record, _ in _records(batch, fields):
        found = record if isinstance(record, Bad) else _document(line, record, fields, batch)
        if isinstance(found, RawDocument):
            return False
        if found == _no_genre(fields):
            return True
    return None


def _no_genre(fields: Fields) -> str:
    return f"no field {fields.genre!r} and no --default-genre"


def genre_name(label: str) -> str:
    """Return a genre's label: the ASCII aliases (shi, ci, wen, fu ...) spelled out."""
    return GENRE_ALIASES.get(label.strip(), label.strip())


def parse(batch: Batch, fields: Fields) -> tuple[list[RawDocument], list[Malformed]]:
    """Return the documents of a batch, and its malformed records.

    Raises:
        DataError: the file breaks off.
    """
    name, fields = batch.source.name, fields.of_source(batch.source.settings)
    if batch.source.form == "md":  # a page's date says when it was written
        fields = replace(fields, labels=tuple(dict.fromkeys((*fields.labels, _DATE))))
    bad = [Malformed(name, line, _too_long(batch)) for line in batch.too_long]
    for line, why in batch.bad:
        if why.is_torn:
            shown = batch.source.shown
            raise DataError(f"{shown}: breaks off: {why} (line {line}); fetch it again, or mend its end")
        bad.append(Malformed(name, line, why, why.bytes))
    documents = []
    for line, record, encoding in _records(batch, fields):
        found = record if isinstance(record, Bad) else _document(line, record, fields, batch)
        if isinstance(found, str):
            bad.append(Malformed(name, line, found, record.bytes if isinstance(record, Bad) else 0))
        else:
            found.encoding, found.path = encoding, name
            documents.append(found)
    return documents, bad


def _too_long(batch: Batch) -> str:
    most = MAX_RECORD_BYTES / (1 << 20)
    by = ["`;layout=line` after the place cuts it at each line"] if batch.source.form == "txt" else []
    if batch.limit < MAX_RECORD_BYTES:
        by.append(f"--max-characters allows longer ones, up to {most:.3g} MiB")
    return f"longer than {batch.limit / (1 << 20):.3g} MiB ({', or '.join(by) or 'split it'})"


def _document(line: int, record: Mapping[str, Any], fields: Fields, batch: Batch) -> RawDocument | str:
    """Return the document in `record`, or a description of why there is none."""
    text = joined_text(record.get(fields.text))
    is_blank = text is None or (isinstance(text, str) and (not text or text.isspace()))
    turns = turns_of(record, fields.chat_fields) if is_blank else None
    if isinstance(turns, str):
        return turns
    if turns:
        text = ""
    elif is_blank:
        found = (joined_text(record.get(name)) for name in (*PARAGRAPHS, *TEXTS))
        text = next((other for other in found if isinstance(other, str)), text)
    if not isinstance(text, str):
        return _no_text(text, record, fields, batch)
    given = fields.given
    wrong = _wrong_type(record, fields)
    if wrong:
        return wrong
    genre = given.get("genre") or _string(record.get(fields.genre)) or fields.default_genre
    genre = genre_name(genre or (CHAT if turns else PLAIN if fields.genre_unknown else ""))
    if not genre:
        return _no_genre(fields)
    problem = genre_problem(genre)
    if problem:
        return f"no genre: {problem}"
    source = given.get("source") or _string(record.get(fields.source)) or batch.source.name
    license = given.get("license") or _string(record.get(fields.license))
    return RawDocument(
        line=line,
        text=text,
        title=given.get("title") or _string(record.get(fields.title)),
        author=given.get("author") or _string(record.get(fields.author)),
        genre=genre,
        source=source,
        license=license or fields.license_of(source),
        labels=_labels(record, fields),
        turns=turns or [],
        layout=layout_of_chat(record, fields.chat_fields) if turns else "",
    )


_INSIDE = ("内容", "text", "content")
"""The field of a paragraph that is an object: MNBVC's, and others'."""


def joined_text(value: Any) -> Any:
    """Return a text, also one in a list of lines or paragraphs; None for nothing; else `value` as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        parts = [_paragraph(part) for part in value]
        return "\n".join(parts) if all(isinstance(part, str) for part in parts) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _paragraph(value: Any) -> Any:
    if isinstance(value, Mapping):
        return next((value[name] for name in _INSIDE if isinstance(value.get(name), str)), None)
    return value


def _no_text(text: Any, record: Mapping[str, Any], fields: Fields, batch: Batch) -> str:
    if text is not None:
        return f"{type(text).__name__}, expected text, in field {fields.text!r}"
    names = batch.names or list(record)[:20]
    if fields.text in names or not names:
        return f"no field {fields.text!r}"
    shown = ", ".join(brief(str(name)) for name in names)
    first = ", as the first row says" if batch.source.form in ("csv", "tsv") else ""
    return (
        f"no field {fields.text!r}, only {shown}{first}: name the text's with --text-field, or "
        "behind the source: 'notes.parquet;text_field=content'; a chat's with --chat-fields"
    )


def _wrong_type(record: Mapping[str, Any], fields: Fields) -> str:
    """Return the first field that is no text, number or nothing; "" where all are."""
    for name in fields.names:
        value = record.get(name)
        if value is not None and not isinstance(value, (str, float)) and not _is_number(value):
            return f"{_kind(value)}, expected text, in field {name!r}"
    return ""


def _is_number(value: Any) -> bool:
    """Return whether it is a number that says something: not true, false or NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return repr(value).lower() if isinstance(value, (bool, float)) else type(value).__name__


def _labels(record: Mapping[str, Any], fields: Fields) -> list[tuple[str, str]]:
    own = [(name, value) for name in fields.labels if (value := _string(record.get(name)))]
    if not fields.given_labels:
        return own
    given = dict(fields.given_labels)
    return [*((n, v) for n, v in own if n not in given), *given.items()]


def _string(value: Any) -> str:
    """Return a field that is text or a number as text, without line breaks and white space around."""
    if isinstance(value, str):
        return " ".join(value.split())
    return str(value) if _is_number(value) else ""


Records = Iterator[tuple[int, Mapping[str, Any] | Bad, str]]
"""Line number; the record, or why there is none; encoding of the line."""


def _records(batch: Batch, fields: Fields) -> Records:
    if batch.source.form == "parquet":
        return _row_records(batch)
    if batch.source.form in AS_JSON_LINES:
        return _json_records(batch)
    return _text_records(batch, fields)


def _json_records(batch: Batch) -> Records:
    for line, data in zip(
        batch.numbers or itertools.count(batch.first), batch.data.split(b"\n"), strict=False
    ):
        if not data or data.isspace():
            continue
        if len(data) > batch.limit:  # the reader let it through, depending on its chunks
            yield line, Bad.of(_too_long(batch), len(data)), "utf-8"
            continue
        encoding = "utf-8"
        try:
            record = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            other = _other_json(data)
            if other is None:
                yield line, Bad.of(_why_no_json(data.strip(), error), len(data)), encoding
                continue
            record, encoding = other
        is_record = isinstance(record, dict)
        yield line, record if is_record else Bad.of(_why_no_object(record), len(data)), encoding


def _why_no_json(data: bytes, error: orjson.JSONDecodeError) -> str:
    if data in (b"[", b"{"):
        what, way = ("array", "'.[]'") if data == b"[" else ("object", ".")
        return f"a JSON {what} over several lines; expected one object per line (jq -c {way} OLD > NEW.jsonl)"
    return f"not JSON in UTF-8: {error}"


def _why_no_object(value: Any) -> str:
    if isinstance(value, list):
        return "a JSON array; expected one object per line (jq -c '.[]' OLD > NEW.jsonl)"
    return f"{_kind(value)}; expected a JSON object"


def _other_json(data: bytes) -> tuple[Any, str] | None:
    """Return a line as JSON in another encoding, or with Python's NaN, and its encoding; else None."""
    try:
        text, encoding = decode_record(data)
        if encoding != "utf-8":
            return orjson.loads(text), encoding
        if _NOT_FINITE.search(text):
            value = json.loads(text, parse_constant=lambda _: None)
            orjson.dumps(value)  # halves of characters are refused as elsewhere
            return value, encoding
    except (ValueError, TypeError, RecursionError):
        pass
    return None


def _text_records(batch: Batch, fields: Fields) -> Records:
    layout = batch.layout
    line = batch.first
    for block, after in text_blocks(batch.data, layout):
        if block and not block.isspace():
            first = line + block[: len(block) - len(block.lstrip())].count(b"\n")
            block = block[_LEADING.match(block).end() :]  # type: ignore[union-attr]  # where a file was cut
            try:
                text, encoding = decode_record(block)
            except UnicodeDecodeError as error:
                yield first, Bad.of(f"not UTF-8: {error.reason}", len(block)), "utf-8"
                continue
            if len(block) > batch.limit:
                yield first, Bad.of(_too_long(batch), len(block)), encoding
            elif batch.source.form == "md" and layout == "file":
                yield from _page_records(batch.source.name, first, text, encoding, fields)
            elif layout == "chapter":
                for before, name, chapter in cut_at_chapters(text):
                    of_book = {fields.title: f"{_stem(batch.source.name)} {name}".strip()}
                    if not chapter.isspace():
                        yield line + before, {**of_book, fields.text: chapter}, encoding
            else:
                title = {fields.title: _stem(batch.source.name)} if layout == "file" else {}
                yield first, {**title, fields.text: text}, encoding
        line += after


def _page_records(name: str, first: int, text: str, encoding: str, fields: Fields) -> Records:
    given, page, before = front_matter(text.replace("\r\n", "\n").lstrip("\n"))
    own = {fields.title: given.get(fields.title) or first_heading(page) or _stem(name)}
    for line, part in cut_at_headings(page, fields.max_characters):
        if part and not part.isspace():
            yield first + before + line, {**given, **own, fields.text: part}, encoding


def _stem(name: str) -> str:
    """Return a file's name without folder and extensions: the title of a text that is a whole file."""
    last = name.rpartition("/")[2]
    return re.sub(r"\.(?:txt|md|markdown)(\.\w+)?\Z", "", last, flags=re.IGNORECASE)


def text_blocks(data: bytes, layout: str) -> Iterator[tuple[bytes, int]]:
    """Yield each document's bytes, and the number of line breaks in and after it."""
    if layout in ("file", "chapter"):
        yield data, 0
    elif layout == "line":
        yield from ((line, 1) for line in data.split(b"\n"))
    else:
        start = 0
        for end, after in _separators(data):
            yield data[start:end], data.count(b"\n", start, after)
            start = after


def _separators(data: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of blank lines, and finally the end of `data`."""
    yield from (found.span() for found in _BLANK_LINES.finditer(data))
    yield len(data), len(data)


def _row_records(batch: Batch) -> Records:
    rows: pa.RecordBatch = batch.data
    binary = [f.name for f in rows.schema if pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type)]
    try:
        found: list[dict[str, Any] | UnicodeDecodeError] = rows.to_pylist()
    except UnicodeDecodeError:  # written without a check: read row by row, bad ones are reported
        found = [_row(rows, index) for index in range(rows.num_rows)]
    for line, row in enumerate(found, batch.first):
        try:
            if isinstance(row, UnicodeDecodeError):
                raise row
            texts = {name: decode_record(row[name])[0] for name in binary if row[name] is not None}
            yield line, {**row, **texts}, "utf-8"
        except UnicodeDecodeError as error:
            why = Bad.of(f"not UTF-8: {error.reason}", rows.nbytes // max(rows.num_rows, 1))
            yield line, why, "utf-8"


def _row(rows: pa.RecordBatch, index: int) -> dict[str, Any] | UnicodeDecodeError:
    try:
        found: dict[str, Any] = rows.slice(index, 1).to_pylist()[0]
        return found
    except UnicodeDecodeError as error:
        return error
