"""A raw file's bytes, decompressed as a stream, with progress in bytes of the file.

No step holds more than one chunk: few compressed bytes are read at a time, as they may decompress to
many, and a file that decompresses to more than 1 GB and 1,000 times its size is refused as a bomb."""

from __future__ import annotations

import bz2
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import zstandard

from yanmo.common.errors import DataError, StorageError, in_words
from yanmo.curate.sources.encodings import detect, packed_kind
from yanmo.curate.sources.listing import Source
from yanmo.curate.sources.raw_files import open_file, reading

CHUNK_BYTES = {"": 1 << 20, "gz": 1 << 13, "xz": 1 << 12, "zst": 1 << 12, "bz2": 1 << 12}
"""Bytes read at a time. Few where they may decompress to many (zstd: 128 kB from 3 bytes, bzip2: 900 kB from
45, xz: 7,000 times)."""

BOMB_BYTES = 1 << 30
BOMB_RATIO = 1000
"""Text compresses 3 to 10 times, logs 100 times; one repeated byte 1,032 times with gzip, more with
others."""
_PIECE_BYTES = 1 << 20
"""The most that is given on at a time: 4 kB of a bomb may be 170 MB, and whoever takes them makes copies."""

_XZ_MEMORY = 1 << 28
_MAGIC = {"gz": b"\x1f\x8b\x08", "xz": b"\xfd7z", "zst": b"\x28\xb5\x2f", "bz2": b"BZh"}
"""The first three bytes of each."""
_NEW: dict[str, Callable[[], Any]] = {
    "gz": lambda: zlib.decompressobj(wbits=31),
    "xz": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY),
    "zst": lambda: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(),
    "bz2": bz2.BZ2Decompressor,
}


def raw_chunks(source: Source, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the file's bytes as they are.

    Args:
        on_bytes: called with the number of bytes that were read.

    Raises:
        DataError: it cannot be read.
    """
    with open_file(source.uri) as file, reading(source.shown):
        while chunk := file.read(CHUNK_BYTES[source.compression]):
            on_bytes(len(chunk))
            yield chunk


def unpacked(source: Source, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the file's bytes, decompressed; several consecutive frames or members are one text.

    Raises:
        DataError: it cannot be read, is damaged or truncated, or is a decompression bomb.
    """
    chunks = raw_chunks(source, on_bytes)
    if not source.compression:
        yield from chunks
        return
    first = next(chunks, b"")
    _check_packed(source, first)
    chunks = itertools.chain((first,), chunks)
    read = made = 0
    for size, piece in _pieces(source, chunks):
        read, made = read + size, made + len(piece)
        if made > BOMB_BYTES and made > BOMB_RATIO * read:
            raise DataError(
                f"{source.shown}: {read} bytes decompress to more than {made}, which may be a decompression "
                "bomb; decompress it yourself if its text is real"
            )
        if len(piece) <= _PIECE_BYTES:
            yield piece
        else:
            yield from (piece[at : at + _PIECE_BYTES] for at in range(0, len(piece), _PIECE_BYTES))


def _check_packed(source: Source, head: bytes) -> None:
    """Raise `DataError` where the file is not what the end of its name says."""
    kind = packed_kind(head)
    if not kind and _MAGIC[source.compression].startswith(head[:3]):
        return
    if f"(.{source.compression})" in kind:
        return
    found = kind or ("plain text" if detect(head).encoding else "")
    if found:
        raise DataError(
            f"{source.shown}: is {found}, and its name ends in .{source.compression}: rename it "
            f"{'without that' if found == 'plain text' else 'to what it is'}, or pack it"
        )


def _pieces(source: Source, chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield bytes taken in and bytes given out, step by step."""
    unpacker = None
    try:
        for chunk in chunks:
            size = len(chunk)
            while chunk:
                unpacker = unpacker or _NEW[source.compression]()
                yield size, unpacker.decompress(chunk)
                chunk, size = b"", 0
                if unpacker.eof:
                    chunk, unpacker = unpacker.unused_data, None
    except (zlib.error, lzma.LZMAError, zstandard.ZstdError, ValueError, OSError, EOFError) as error:
        if isinstance(error, (DataError, StorageError)):
            raise
        raise DataError(
            f"{source.shown}: damaged .{source.compression} data: {in_words(error)}; fetch it again"
        ) from error
    if unpacker is not None:
        raise DataError(
            f"{source.shown}: truncated: its .{source.compression} data stops in the middle after "
            f"{source.bytes} bytes; fetch it again"
        )
