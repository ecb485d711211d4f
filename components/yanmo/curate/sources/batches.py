"""Raw files as batches of whole lines, blocks or rows, streamed whatever the file's size.

A batch is what one process normalizes at a time. Reading and decompression stay in one process; only
normalization is done by workers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.foreign import foreign
from yanmo.curate.sources.batch import MAX_RECORD_BYTES as MAX_RECORD_BYTES
from yanmo.curate.sources.batch import Bad as Bad
from yanmo.curate.sources.batch import Batch as Batch
from yanmo.curate.sources.batch import as_batches
from yanmo.curate.sources.chat_layouts import OTHERS, Pair
from yanmo.curate.sources.encodings import SAMPLE_BYTES, as_utf8, file_encoding
from yanmo.curate.sources.json_files import are_json_lines, json_records
from yanmo.curate.sources.listing import Source
from yanmo.curate.sources.raw_files import open_file
from yanmo.curate.sources.tables import table_records
from yanmo.curate.sources.text_layouts import likely_layout
from yanmo.curate.sources.unpacking import unpacked

AS_JSON_LINES = ("jsonl", "json", "csv", "tsv")
"""Forms whose batches hold lines of JSON."""
_ROWS = 4096
_MOST_IN_A_LIST = 20_000
"""Columns and row groups of a Parquet file: 200,000 columns take 726 MB before the first row."""
_SHOWN_NAMES = 20
_OVERHANG = 3
"""A boundary may begin this many bytes before the end of what was read."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How files are read, unless their own settings say otherwise."""

    encoding: str = "auto"
    layout: str = "auto"
    chat_fields: Pair | None = None
    max_record_bytes: int = MAX_RECORD_BYTES


def read_batches(
    source: Source,
    columns: list[str],
    batch_bytes: int,
    on_bytes: Callable[[int], None],
    how: Reading = Reading(),
) -> Iterator[Batch]:
    """Yield the records of `source`, in order, in batches of about `batch_bytes`.

    Args:
        columns: Parquet columns to read, the text's first; those of chats are read where it has gaps.
        on_bytes: called with the number of bytes of the file that were read.

    Raises:
        DataError: unreadable, truncated, damaged, binary or changed file.
    """
    source.check_unchanged()
    if source.form == "parquet":
        for batch in _row_batches(source, columns, batch_bytes, on_bytes):
            yield from _without_long_rows(batch, how.max_record_bytes)
    else:
        yield from _text_batches(source, columns, batch_bytes, on_bytes, how)
    source.check_unchanged()


def layout_of(source: Source, default: str) -> str:
    """Return the unit of documents in `source`: a line of JSON, or one of LAYOUTS; of Markdown a file."""
    default = "file" if source.form == "md" else default
    return "line" if source.form in AS_JSON_LINES else source.settings.get("layout", default)


def _text_batches(
    source: Source, columns: list[str], batch_bytes: int, on_bytes: Callable[[int], None], how: Reading
) -> Iterator[Batch]:
    encoding, text = utf8_chunks(source, on_bytes, how.encoding)
    layout, limit = layout_of(source, how.layout), how.max_record_bytes
    head = next(text, b"") if source.form == "json" or layout == "auto" else b""
    if layout == "auto":
        layout = likely_layout(head[:SAMPLE_BYTES])  # what says it is the same however a file is read
    if source.form in ("csv", "tsv"):
        batches = as_batches(source, table_records(source.form, text, limit), batch_bytes, limit)
    elif source.form == "json" and not are_json_lines(head):
        records = json_records(itertools.chain((head,), text), columns, how.chat_fields)
        batches = as_batches(source, records, batch_bytes, limit)
    elif layout in ("file", "chapter"):
        batches = _whole_file(source, itertools.chain((head,), text), limit)
    else:
        boundaries = (b"\n",) if layout == "line" else (b"\n\n", b"\n\r\n")
        batches = _line_batches(source, itertools.chain((head,), text), boundaries, batch_bytes, limit)
    for batch in batches:
        yield dataclasses.replace(batch, encoding=encoding, limit=how.max_record_bytes, layout=layout)


def utf8_chunks(
    source: Source, on_bytes: Callable[[int], None], encoding: str = "auto"
) -> tuple[str, Iterator[bytes]]:
    """Return the encoding of a text file, and its unpacked text as UTF-8.

    Args:
        encoding: one of ENCODINGS, where the file's own settings name none.
    """
    chunks = unpacked(source, on_bytes)
    head = _head(chunks)
    found = file_encoding(source.shown, head[:SAMPLE_BYTES], source.settings.get("encoding", encoding))
    return found.encoding, as_utf8(itertools.chain((head,), chunks), found.encoding)


def _head(chunks: Iterator[bytes]) -> bytes:
    """Return the beginning of a file, enough to detect its encoding."""
    head = bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) >= SAMPLE_BYTES:
            break
    return bytes(head)


def _whole_file(source: Source, chunks: Iterator[bytes], limit: int) -> Iterator[Batch]:
    data, size = bytearray(), 0
    for chunk in chunks:
        size += len(chunk)
        if len(data) <= limit:
            data += chunk
    if size > limit:
        yield Batch(source=source, first=1, data=b"", too_long=(1,), skipped=size)
    else:
        yield Batch(source=source, first=1, data=bytes(data))


def _line_batches(
    source: Source, chunks: Iterator[bytes], boundaries: tuple[bytes, ...], batch_bytes: int, limit: int
) -> Iterator[Batch]:
    """Batches that end at a boundary, so that no record is split."""
    buffer = bytearray()
    first, skipping = 1, False
    too_long: list[int] = []
    skipped = 0
    searched = 0  # no record ends before here

    def batch(data: bytearray) -> Batch:
        return Batch(source=source, first=first, data=bytes(data), too_long=tuple(too_long), skipped=skipped)

    for chunk in chunks:
        buffer += chunk
        if skipping:
            start, size = _first_end(buffer, boundaries), len(buffer)
            skipping, searched = start < 0, 0
            first += _drop(buffer, start if start >= 0 else len(buffer) - _OVERHANG)
            skipped += size - len(buffer)
        if skipping or len(buffer) < batch_bytes:
            continue
        end = _last_end(buffer, boundaries, searched)
        if end >= 0:
            yield batch(buffer[:end])
            first += _drop(buffer, end)
            too_long.clear()
            skipped = 0
        elif len(buffer) > limit:
            too_long.append(first)
            skipping = True
            skipped += len(buffer) - _OVERHANG
            first += _drop(buffer, len(buffer) - _OVERHANG)
        searched = max(0, len(buffer) - _OVERHANG) if end < 0 else 0
    if skipping:
        skipped += len(buffer)
        buffer.clear()
    if buffer or too_long:
        yield batch(buffer)


def _first_end(buffer: bytearray, boundaries: tuple[bytes, ...]) -> int:
    """Return the end of the first record, its boundary included; -1 when it is not in `buffer`."""
    found = [(at, len(b)) for b in boundaries if (at := buffer.find(b)) >= 0]
    return sum(min(found)) if found else -1


def _last_end(buffer: bytearray, boundaries: tuple[bytes, ...], searched: int) -> int:
    """Return the end of the last whole record, from `searched` on; -1 when there is none."""
    ends = [at + len(b) for b in boundaries if (at := buffer.rfind(b, searched)) >= 0]
    return max(ends, default=-1)


def _drop(buffer: bytearray, count: int) -> int:
    """Remove the first `count` bytes (none below 0); how many line breaks they held."""
    count = max(count, 0)
    lines = buffer.count(b"\n", 0, count)
    del buffer[:count]
    return lines


def _row_batches(
    source: Source, columns: list[str], batch_bytes: int, on_bytes: Callable[[int], None]
) -> Iterator[Batch]:
    first = 1
    with open_parquet(source, source.shown) as file:
        have = file.schema_arrow.names
        if _has_gaps(file, columns[0]):
            columns = [*columns, *OTHERS]
        read = [name for name in dict.fromkeys(columns) if name in have]
        if set(read).isdisjoint((*columns[:1], *OTHERS)):
            read += [name for name in have if name not in read][:1]  # rows to count, with a name to show
        rows = max(file.metadata.num_rows, 1)
        size = rows_at_a_time(file.metadata, batch_bytes)
        for batch in file.iter_batches(size, columns=read):
            on_bytes(source.bytes * batch.num_rows // rows)
            yield Batch(source=source, first=first, data=batch, names=tuple(have[:_SHOWN_NAMES]))
            first += batch.num_rows


def _has_gaps(file: pq.ParquetFile, column: str) -> bool:
    """Return whether a column is not there, or has rows without a text as far as the file says."""
    if column not in file.schema_arrow.names:
        return True
    groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
    chunks = [g.column(i) for g in groups for i in range(g.num_columns)]
    own = [chunk.statistics for chunk in chunks if chunk.path_in_schema == column]
    return not own or not all(map(_is_full, own))


def _is_full(found: Any) -> bool:
    """Return whether statistics say that no text is null or blank."""
    if found is None or not found.has_null_count or found.null_count or not found.has_min_max:
        return False
    return not isinstance(found.min, (str, bytes)) or bool(found.min.strip())


@contextmanager
def open_parquet(source: Source, shown: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file that others made, within limits; what its reading raises is a DataError."""
    with (
        foreign(f"{shown}: not a readable Parquet file", "fetch it again"),
        open_file(source.uri) as stream,
        pq.ParquetFile(stream, thrift_container_size_limit=_MOST_IN_A_LIST) as file,
    ):
        yield file


def _without_long_rows(batch: Batch, limit: int) -> Iterator[Batch]:
    """Yield the batch, cut at rows of more than `limit` bytes, which are left out as longer lines are."""
    rows: pa.RecordBatch = batch.data
    if rows.nbytes <= limit:
        yield batch
        return
    start = size = 0
    too_long: tuple[int, ...] = ()
    for at in [*(n for n in range(len(rows)) if rows.slice(n, 1).nbytes > limit), len(rows)]:
        if start < at or too_long:
            part = rows.take(pa.array(range(start, at), pa.int64()))  # a slice would hold all of it
            yield dataclasses.replace(
                batch, first=batch.first + start, data=part, too_long=too_long, skipped=size, limit=limit
            )
        start, too_long, size = at + 1, (batch.first + at,), rows.slice(at, 1).nbytes


def rows_at_a_time(metadata: Any, batch_bytes: int) -> int:
    """Return how many rows have about `batch_bytes`, by the size of the largest row group."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    row = max((g.total_byte_size // max(g.num_rows, 1) for g in groups), default=1)
    return max(1, min(_ROWS, batch_bytes // max(row, 1)))
