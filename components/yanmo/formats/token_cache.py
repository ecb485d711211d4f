"""Token cache v1: written by `tokenize`, mapped into memory by `train`.

    tokens-00000-of-0000N.parquet      ids of documents `<|bos|> text <|eos|>` laid end to end
    documents-00000-of-0000N.parquet   one row per document of the token file of the same number
    genres.json (in the tokenizer)     genre -> tag id, and the ids of the special tokens

A file does not contain its own number, so that a cache made again after one input shard has changed can take
over the other files as they are. Context length, packing and tags are not in the cache: the trainer plans
them (`yanmo.formats.packing`), and changing them does not require tokenizing again.

Any Parquet reader opens the files. Tokens by genre, and the beginning of the first document as text:

    duckdb.sql("select genre, count(*), sum(length) from 'documents-*.parquet' group by genre")
    Tokenizer.from_file("tokenizer.json").decode(
        np.frombuffer(pq.read_table("tokens-00000-of-00002.parquet")["tokens"][0].as_py(), "<u2")[:40])

A token file is a valid Parquet file and a memory map at once. Parquet stores a 16-bit number in 4 bytes, and
its readers copy. So ids lie as raw little-endian bytes in one non-null, uncompressed fixed_size_binary
column, one row group, one page: any Parquet reader opens the file, and here it is mapped at no cost.
Alternative not taken: reading rows at random through a Parquet reader gave 2 million tokens per CPU-second
against 158 million (prototype). The mapped ids begin right after a page header whose length may be odd, so
the array can be unaligned. numpy handles that; copy the array before handing it to code that assumes
alignment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError
from yanmo.store.output import Output

VERSION = "1"
"""Of token files and of their documents' tables: they are written, read and refused together."""
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


GENRES_FILE = "genres.json"
TOKENIZER = "tokenizer"
"""Name of the part of the cache's output that holds the tokenizer."""

INDEX = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("genre", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int32(), nullable=False),
        pa.field("characters", pa.int32(), nullable=False),
        pa.field("loss_spans", pa.list_(pa.list_(pa.int32(), 2))),
    ]
)
"""One document per row: its first id is at `offset` of the token file; `length` ids with `<|bos|>` and
`<|eos|>`; `characters` that are not white space (in a chat, those of its answers); `loss_spans` as
[begin, end) in ids of the document (null = all)."""


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens, and of the tag of each genre."""

    vocab_size: int
    bos: int
    eos: int
    pad: int
    unk: int
    genres: tuple[str, ...]
    tag_ids: tuple[int, ...]
    """Parallel to `genres`."""
    im_start: int = -1
    """Begins a message of a chat: `<|im_start|>role\\n content <|im_end|>\\n`; -1 if there is none."""
    im_end: int = -1
    """Ends a message of a chat."""

    def to_json(self) -> str:
        """Return the text of `genres.json`."""
        return json.dumps(vars(self), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> SpecialIds:
        """Read `genres.json`, a verified file of a committed output."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**values | {name: tuple(values[name]) for name in ("genres", "tag_ids")})


@dataclass(frozen=True)
class DocumentIndex:
    """The documents of one split, in the order of the cache; parallel arrays."""

    ids: np.ndarray[Any, np.dtype[Any]]
    """Document ids (objects of type str)."""
    genre: np.ndarray[Any, np.dtype[np.int16]]
    """Index into `TokenCache.genres`."""
    shard: np.ndarray[Any, np.dtype[np.int32]]
    """Index into `TokenCache.tokens`."""
    offset: np.ndarray[Any, np.dtype[np.int64]]
    """Where the document begins in its shard, in tokens."""
    length: np.ndarray[Any, np.dtype[np.int32]]
    """Tokens, `<|bos|>` and `<|eos|>` included; at least 2."""
    characters: np.ndarray[Any, np.dtype[np.int32]]
    """Characters that are not white space; in a chat, those of its answers."""
    loss_spans: dict[int, list[list[int]]]
    """Position in these arrays -> [begin, end) in tokens of the document; absent = every token."""

    def __len__(self) -> int:
        return len(self.ids)


class TokenCache:
    """One opened token cache; its ids are mapped into memory, not read."""

    def __init__(
        self, files: Sequence[TokenFile], tables: Sequence[pa.Table], special: SpecialIds, tokenizer: Output
    ) -> None:
        self.tokenizer = tokenizer
        self.special = special
        self.vocab_size, self.bos, self.eos = special.vocab_size, special.bos, special.eos
        self.tokens: list[Ids] = [file.ids for file in files]
        """The ids of each shard: uint16 or uint32 views of the memory map."""
        named = {genre for table in tables for genre in table["genre"].unique().to_pylist()}
        self.genres = [*special.genres, *sorted(named - set(special.genres))]
        """The genres that have a tag, then the other genres of the documents."""
        tags = dict(zip(special.genres, special.tag_ids, strict=True))
        self.tag_ids = [tags.get(genre, -1) for genre in self.genres]
        """Parallel to `genres`; -1 where the tokenizer has no tag for the genre."""
        self._splits = [file.split for file in files]
        self._tables = tables

    @classmethod
    def open(cls, output: Output) -> TokenCache:
        """Open the cache of a committed output, verifying every file against its manifest.

        Raises:
            DataError: a file is missing, has changed, or does not belong to the others; says which field
                differs.
        """
        tokenizer = output.part(TOKENIZER)
        special = SpecialIds.read(tokenizer.path(GENRES_FILE))
        expected = {"vocab_size": special.vocab_size, "tokenizer": tokenizer.content_digest}
        files = [open_tokens(path, expected) for path in output.paths("tokens-*.parquet")]
        tables = [read_index(path, expected) for path in output.paths("documents-*.parquet")]
        return cls(files, tables, special, tokenizer)

    def split(self, name: str) -> DocumentIndex:
        """Return the documents of split `name` (train or valid), in the order of shards and rows."""
        shards = [k for k, split in enumerate(self._splits) if split == name]
        tables = [self._tables[k] for k in shards]
        table = pa.concat_tables(tables) if tables else INDEX.empty_table()
        place = {genre: i for i, genre in enumerate(self.genres)}
        spans = table["loss_spans"]
        return DocumentIndex(
            ids=table["id"].to_numpy(),
            genre=_codes(table["genre"], place),
            shard=np.repeat(np.array(shards, np.int32), [len(t) for t in tables]),
            offset=table["offset"].to_numpy(),
            length=table["length"].to_numpy(),
            characters=table["characters"].to_numpy(),
            loss_spans={i: spans[i].as_py() for i in np.flatnonzero(spans.is_valid().to_numpy()).tolist()},
        )


def write_index(path: Path, table: pa.Table, *, vocab_size: int, tokenizer: str) -> None:
    """Write the document file `path`; `table` has the columns of `INDEX`."""
    metadata = {
        "yanmo.schema": "token_documents",
        "yanmo.version": VERSION,
        "yanmo.vocab_size": str(vocab_size),
        "yanmo.tokenizer": tokenizer,
    }
    schema = INDEX.with_metadata(metadata)
    pq.write_table(
        table.cast(schema),
        path,
        compression="zstd",
        use_dictionary=["genre", "split"],  # ids and numbers differ from row to row
        write_page_checksum=True,
        row_group_size=1 << 17,
    )


def read_index(path: Path, expected: dict[str, Any] | None = None) -> pa.Table:
    """Read a document file.

    Args:
        expected: values its metadata must have, by name (`vocab_size`, `tokenizer`).

    Raises:
        DataError: it is of another schema, or a field is not as expected; names the field.
    """
    table = pq.read_table(path, partitioning=None)
    found = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
    want = {"schema": "token_documents", "version": VERSION}
    check_fields(path, want | {k: str(v) for k, v in (expected or {}).items()}, found)
    return table


def _codes(column: pa.ChunkedArray, place: dict[str, int]) -> np.ndarray[Any, np.dtype[np.int16]]:
    encoded = column.combine_chunks().dictionary_encode()
    table = np.array([place[genre] for genre in encoded.dictionary.to_pylist()], np.int16)
    codes: np.ndarray[Any, np.dtype[np.int16]] = table[encoded.indices.to_numpy()] if len(column) else table
    return codes
