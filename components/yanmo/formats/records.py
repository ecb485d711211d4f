"""The Parquet schemas that stages exchange: documents v1 and v2, evaluation v2.

Every file has the name and version of its schema in its metadata; `check_schema` checks them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError
from yanmo.common.foreign import foreign
from yanmo.formats.genre_names import GENRE_ALIASES as GENRE_ALIASES

TEXT_FORM = "classical-1"
"""How `text` is written: NFC, simplified, full-width punctuation, no white space inside a line
(`yanmo.curate.text.normalize`). Results on texts of different forms are never compared."""

GENRES = ("诗", "词", "文", "赋")
"""The genres of the bundled corpus, in the order of tables; any other label works as well."""

UNKNOWN_AUTHORS = frozenset(
    ("", "佚名", "无名氏", "無名氏", "不详", "不詳", "阙名", "闕名", "失名", "无", "anonymous", "unknown")
)
"""Names that mean that the author is unknown: documents under such a name are not a group."""

CONFIRM = "confirm"
"""The split that promotions are confirmed on: scored each night, but its scores are only read to confirm."""

DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("genre", pa.string(), nullable=False),
        pa.field("labels", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("author", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("license", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("parent_id", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("cluster_id", pa.string()),
        pa.field("cluster_size", pa.int32()),
        pa.field("loss_spans", pa.list_(pa.list_(pa.int32(), 2))),
    ],
    metadata={"yanmo.schema": "documents", "yanmo.version": "1", "yanmo.text_form": TEXT_FORM},
)

TURN = pa.struct([("role", pa.string()), ("begin", pa.int32()), ("end", pa.int32())])
"""A turn of a chat: role (system, user or assistant) and the range of its text in `text`, in characters."""

DOCUMENTS_WITH_TURNS = DOCUMENTS.append(pa.field("turns", pa.list_(TURN))).with_metadata(
    {**DOCUMENTS.metadata, b"yanmo.version": b"2"}
)
"""Documents v2: v1 with the turns of chats (null = not a chat). A file without chats is written as v1, so
that chats change nothing for plain text; every reader accepts both."""

_VERSIONS = {"documents": ("1", "2"), "evaluation": ("2",)}
"""Schema -> versions that can be read, if not only version 1."""

EVALUATION = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("genre", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("characters", pa.int32(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("bits", pa.float64(), nullable=False),
        pa.field("bits_with_tag", pa.float64()),
        pa.field("group", pa.string()),
    ],
    metadata={"yanmo.schema": "evaluation", "yanmo.version": "2", "yanmo.text_form": TEXT_FORM},
)
"""Scores of documents: characters that are not white space, tokens with `<|eos|>`, and the bits of all
characters, line breaks and `<|eos|>`, without and with the genre tag. Documents of a `group` belong together
(evaluate/documents/reading.py); null for a document that stands alone. Sorted by genre, then id."""


def document_id(source: str, title: str, text: str) -> str:
    """Return the id of a document: sha256 of source, title and normalized text, 64 hexadecimal digits."""
    return hashlib.sha256("\0".join((source, title, text)).encode()).hexdigest()


def num_characters(text: str) -> int:
    """Return the characters of `text` that are not white space: the divisor of bits per character."""
    return len("".join(text.split()))


def documents_schema(form: str, has_chats: bool) -> pa.Schema:
    """Return the schema of a file of documents: v2 where one of them is a chat, else v1.

    Args:
        form: text form of the documents.
    """
    schema = DOCUMENTS_WITH_TURNS if has_chats else DOCUMENTS
    return schema.with_metadata({**schema.metadata, b"yanmo.text_form": form.encode()})


def check_schema(path: Path, name: str) -> None:
    """Check that a Parquet file has the schema `name`, in a version that this code reads.

    Raises:
        DataError: it is not Parquet, or has another schema or version.
    """
    with foreign(f"{path}: not a readable Parquet file"):
        metadata = pq.read_schema(path).metadata or {}
    versions = _VERSIONS.get(name, ("1",))
    found = metadata.get(b"yanmo.schema", b"?").decode(), metadata.get(b"yanmo.version", b"?").decode()
    if found[0] != name or found[1] not in versions:
        raise DataError(
            f"{path}: expected schema {name} version {' or '.join(versions)}, found {' '.join(found)}"
        )


ROW_GROUP = 16384
"""Rows of a row group of all Parquet files but the token cache's."""


def write_parquet(table: pa.Table, path: Path, level: int = 3) -> None:
    """Write `table` with the settings of all Parquet files but the token cache's: zstd, no date.

    With one version of pyarrow equal tables give equal bytes.

    Args:
        level: of zstd. 1 takes half the time and 17 % more space, for what only the next phases read.
    """
    write_tables([table], table.schema, path, level)


def row_groups(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of tables of any sizes in tables as `write_tables` takes them."""
    left = schema.empty_table()
    for table in tables:
        left = pa.concat_tables([left, table])
        if whole := len(left) // ROW_GROUP * ROW_GROUP:
            yield left.slice(0, whole).combine_chunks()
            left = left.slice(whole)
    yield left.combine_chunks()


def write_tables(tables: Iterable[pa.Table], schema: pa.Schema, path: Path, level: int = 3) -> None:
    """Write tables as one file, with the bytes that `write_parquet` gives all of them together.

    Args:
        tables: of `schema`, each column one chunk; all but the last have a multiple of `ROW_GROUP` rows.
    """
    rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd", compression_level=level) as writer:
        for table in tables:
            assert rows % ROW_GROUP == 0, "a table with a part of a row group was not the last"
            rows += len(table)
            if len(table):
                writer.write_table(table, ROW_GROUP)
        if not rows:
            writer.write_table(schema.empty_table(), ROW_GROUP)
