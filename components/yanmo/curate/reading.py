"""Raw files as batches of whole lines, blocks or rows: streaming, whatever the file's size.

A batch is what one process normalizes at a time. Reading and decompression stay in one process; it is
normalization that is spread over workers.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from yanmo.common.errors import DataError
from yanmo.curate.sources import Source

MAX_RECORD_BYTES = 64 << 20
"""A longer line or block is skipped and counted as malformed: it would not be a document."""

_CHUNK_BYTES = {"": 1 << 20, "gz": 1 << 13, "xz": 1 << 12, "zst": 1 << 12}
"""Read at a time. Small where a few bytes may unpack to many (zstd: 128 kB from 3 bytes), so that a zip bomb
stays a stream."""
_ROWS = 4096
_OVERHANG = 3
"""A boundary may begin this many bytes before the end of what was read."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some consecutive records of one file."""

    source: Source
    first: int
    """Line number (row number in Parquet) of the first record, from 1."""
    data: Any
    """Bytes of whole lines or blocks, or a record batch."""
    too_long: tuple[int, ...] = ()
    """Numbers of lines that were skipped because of MAX_RECORD_BYTES."""


def read_batches(
    source: Source, columns: list[str], batch_bytes: int, on_bytes: Callable[[int], None]
) -> Iterator[Batch]:
    """The records of `source`, in order, in batches of about `batch_bytes`.

    Args:
        columns: Parquet columns to read; the first one must be there.
        on_bytes: called with the number of bytes of the file that were read.

    Raises:
        DataError: unreadable, truncated, damaged or changed file.
    """
    source.check_unchanged()
    if source.form == "parquet":
        yield from _row_batches(source, columns, on_bytes)
    else:
        boundaries = (b"\n",) if source.form == "jsonl" else (b"\n\n", b"\n\r\n")
        chunks = _without_bom(_decompressed(source, on_bytes))
        yield from _line_batches(source, chunks, boundaries, batch_bytes)
    source.check_unchanged()


def _raw_chunks(path: Path, size: int, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(size):
                on_bytes(len(chunk))
                yield chunk
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


_NEW: dict[str, Callable[[], Any]] = {
    "gz": lambda: zlib.decompressobj(wbits=31),
    "xz": lzma.LZMADecompressor,
    "zst": lambda: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(),
}


def _decompressed(source: Source, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """The file's bytes, unpacked; several frames or members one after the other are one text."""
    chunks = _raw_chunks(source.path, _CHUNK_BYTES[source.compression], on_bytes)
    if not source.compression:
        yield from chunks
        return
    unpacker = None
    try:
        for chunk in chunks:
            while chunk:
                unpacker = unpacker or _NEW[source.compression]()
                yield unpacker.decompress(chunk)
                chunk = b""
                if unpacker.eof:
                    chunk, unpacker = unpacker.unused_data, None
    except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise DataError(
            f"{source.path}: damaged .{source.compression} data: {error}; fetch it again"
        ) from error
    if unpacker is not None:
        raise DataError(
            f"{source.path}: truncated: its .{source.compression} data stops in the middle after "
            f"{source.bytes} bytes; fetch it again"
        )


def _without_bom(chunks: Iterator[bytes]) -> Iterator[bytes]:
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= len(_BOM):
            break
    yield head.removeprefix(_BOM)
    yield from chunks


def _line_batches(
    source: Source, chunks: Iterator[bytes], boundaries: tuple[bytes, ...], batch_bytes: int
) -> Iterator[Batch]:
    """Batches that end at a boundary, so that no record is split."""
    buffer = bytearray()
    first, skipping = 1, False
    too_long: list[int] = []
    searched = 0  # no record ends before here
    for chunk in chunks:
        buffer += chunk
        if skipping:
            start = _first_end(buffer, boundaries)
            skipping, searched = start < 0, 0
            first += _drop(buffer, start if start >= 0 else len(buffer) - _OVERHANG)
        if skipping or len(buffer) < batch_bytes:
            continue
        end = _last_end(buffer, boundaries, searched)
        if end >= 0:
            yield Batch(source=source, first=first, data=bytes(buffer[:end]), too_long=tuple(too_long))
            first += _drop(buffer, end)
            too_long.clear()
        elif len(buffer) > MAX_RECORD_BYTES:
            too_long.append(first)
            skipping = True
            first += _drop(buffer, len(buffer) - _OVERHANG)
        searched = max(0, len(buffer) - _OVERHANG) if end < 0 else 0
    if skipping:
        buffer.clear()
    if buffer or too_long:
        yield Batch(source=source, first=first, data=bytes(buffer), too_long=tuple(too_long))


def _first_end(buffer: bytearray, boundaries: tuple[bytes, ...]) -> int:
    """Where the first record ends, its boundary included; -1 when it does not end in `buffer`."""
    found = [(at, len(b)) for b in boundaries if (at := buffer.find(b)) >= 0]
    return sum(min(found)) if found else -1


def _last_end(buffer: bytearray, boundaries: tuple[bytes, ...], searched: int) -> int:
    """Where the last whole record ends, looking from `searched` on; -1 when none does."""
    ends = [at + len(b) for b in boundaries if (at := buffer.rfind(b, searched)) >= 0]
    return max(ends, default=-1)


def _drop(buffer: bytearray, count: int) -> int:
    """Remove the first `count` bytes (none below 0); how many line breaks they held."""
    count = max(count, 0)
    lines = buffer.count(b"\n", 0, count)
    del buffer[:count]
    return lines


def _row_batches(source: Source, columns: list[str], on_bytes: Callable[[int], None]) -> Iterator[Batch]:
    first = 1
    try:
        with pq.ParquetFile(source.path) as file:
            have = file.schema_arrow.names
            if columns[0] not in have:
                raise DataError(
                    f"{source.path}: no column {columns[0]!r}; it has {', '.join(have[:20])}: name the "
                    "text's with --text-field"
                )
            rows = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(_ROWS, columns=[c for c in columns if c in have]):
                on_bytes(source.bytes * batch.num_rows // rows)
                yield Batch(source=source, first=first, data=batch)
                first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{source.path}: not a readable Parquet file: {error}; fetch it again") from error
