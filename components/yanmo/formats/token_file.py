"""A file of token ids that is a valid Parquet file and a memory map at once.

Parquet stores a 16-bit number in 4 bytes, and its readers copy. So ids lie as raw little-endian bytes in one
non-null, uncompressed fixed_size_binary column, one row group, one page: any Parquet reader opens the file,
and here it is mapped at no cost. Alternative not taken: reading rows at random through a Parquet reader gave
2 million tokens per CPU-second against 158 million (prototype).

The mapped ids begin right after a page header whose length may be odd, so the array can be unaligned. numpy
handles that; copy the array before handing it to code that assumes alignment.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError

VERSION = "1"
ROW_BYTES = 2048
"""Width of the Parquet column; the last row is padded with zeros."""
MAX_BYTES = 1 << 30
"""Most bytes of ids in one file (a Parquet page holds less than 2^31)."""

Ids = np.ndarray[Any, np.dtype[Any]]


def id_type(vocab_size: int) -> np.dtype[Any]:
    """Return the type in which ids of a vocabulary are stored: uint16 up to 65,536 ids, else uint32."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def write_tokens(
    path: Path,
    ids: Ids | list[Ids],
    *,
    vocab_size: int,
    tokenizer: str,
    split: str,
) -> None:
    """Write `ids` (one dimension) to `path`; equal arguments give equal bytes.

    Args:
        ids: token ids below `vocab_size`; or some arrays of them, one after another, in a list that is
            emptied: so they are not in memory twice beside what the writer takes, four times as much.
        vocab_size: number of ids of the vocabulary; decides the stored type.
        tokenizer: content digest of the tokenizer that made them.
        split: train or valid.

    Raises:
        ValueError: more than `MAX_BYTES`, or an id outside of the vocabulary.
    """
    parts, dtype = ids if isinstance(ids, list) else [ids], id_type(vocab_size)
    number = sum(map(len, parts))
    size = number * dtype.itemsize
    if size > MAX_BYTES:
        raise ValueError(f"{size} bytes of ids; one file holds at most {MAX_BYTES}")
    rows = -(-size // ROW_BYTES)
    padded = np.zeros(rows * ROW_BYTES, np.uint8)
    stored, end = padded[:size].view(dtype), number
    while parts:
        part = parts.pop()
        if len(part) and int(part.max()) >= vocab_size:
            raise ValueError(f"token id {int(part.max())} outside of a vocabulary of {vocab_size}")
        stored[end - len(part) : end] = part
        end -= len(part)
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(ROW_BYTES), rows, [None, pa.py_buffer(padded)])
    metadata = {
        "yanmo.schema": "tokens",
        "yanmo.version": VERSION,
        "yanmo.num_tokens": str(number),
        "yanmo.dtype": dtype.name,
        "yanmo.vocab_size": str(vocab_size),
        "yanmo.tokenizer": tokenizer,
        "yanmo.split": split,
    }
    field = pa.field("tokens", pa.binary(ROW_BYTES), nullable=False)
    pq.write_table(
        pa.Table.from_arrays([column], schema=pa.schema([field], metadata=metadata)),
        path,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
        row_group_size=max(rows, 1),
        data_page_size=(1 << 31) - 1,
        max_rows_per_page=max(rows, 1),  # pyarrow cuts a page at 20,000 rows otherwise
    )


@dataclass(frozen=True)
class TokenFile:
    """One opened token file."""

    path: Path
    ids: Ids
    """Token ids, a read-only view of the file (uint16 or uint32, maybe unaligned)."""
    vocab_size: int
    tokenizer: str
    split: str


def open_tokens(path: Path, expected: Mapping[str, Any] | None = None) -> TokenFile:
    """Map the token file at `path` into memory; takes about a millisecond and reads no ids.

    Args:
        expected: values its metadata must have, by name (`vocab_size`, `tokenizer`, `split`).

    Raises:
        DataError: not a token file of version 1, or a field is not as expected; names the field.
    """
    parquet = pq.read_metadata(path)
    found = {k.decode(): v.decode() for k, v in (parquet.metadata or {}).items() if k.startswith(b"yanmo.")}
    want = {"schema": "tokens", "version": VERSION} | {k: str(v) for k, v in (expected or {}).items()}
    check_fields(path, want, found)
    vocab_size, num_tokens = int(found["yanmo.vocab_size"]), int(found["yanmo.num_tokens"])
    ids = _map(path, parquet, id_type(vocab_size), num_tokens)
    tokenizer, split = (found.get(f"yanmo.{name}", "") for name in ("tokenizer", "split"))
    return TokenFile(path, ids, vocab_size, tokenizer, split)


def check_fields(path: Path, want: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise DataError naming the first field of the metadata that differs."""
    for name, value in want.items():
        have = found.get(f"yanmo.{name}")
        if have != value:
            raise DataError(
                f"{path}: {name} differs: expected {value!r}, found {have!r}; "
                "run the tokenize stage again with --force, or give the token cache and tokenizer that "
                "belong together"
            )


def _map(path: Path, parquet: Any, dtype: np.dtype[Any], num_tokens: int) -> Ids:
    if not num_tokens:
        return np.empty(0, dtype)
    assert sys.byteorder == "little", "ids are mapped as they lie: little-endian"
    column = parquet.row_group(0).column(0)
    payload = parquet.num_rows * ROW_BYTES
    with path.open("rb") as file:
        file.seek(column.data_page_offset)
        if _page_bytes(file.read(32)) != payload:
            raise DataError(f"{path}: ids are not in one page; run the tokenize stage again with --force")
    header = column.total_compressed_size - payload
    mapped = np.memmap(path, dtype, "r", column.data_page_offset + header, (num_tokens,))
    return np.asarray(mapped)  # a plain view of the map: slices of np.memmap cost twice as much


def _page_bytes(header: bytes) -> int:
    """Return the uncompressed size in a Parquet page header (Thrift compact: field 1 type, field 2 this).

    A writer that cuts pages otherwise than pyarrow did (`write_tokens`) would give ids mixed with headers.
    """
    if header[:3] != b"\x15\x00\x15":
        return -1
    value = shift = 0
    for byte in header[3:13]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value >> 1  # zigzag of a number that is never negative
