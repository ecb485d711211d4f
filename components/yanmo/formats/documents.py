"""Documents in Parquet files: read, counted, gathered from many files, written in shards.

Both `curate` and `balance` choose documents in a small table (one line per document: which file, which row)
and then write the chosen rows in the order of their ids (engine/row_pieces.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.common.errors import DataError
from yanmo.formats.records import TEXT_FORM, check_schema, documents_schema, write_tables
from yanmo.store.output import Output

log = logging.getLogger(__name__)
Ints = npt.NDArray[np.signedinteger[Any]]
BATCH_BYTES = 8 << 20
"""Text of a batch of documents, about."""
_EVALUATION_SET = "evaluation_set"
_FILES, _SAMPLE = 16, 200_000
"""Sample of the training text: number of files, evenly spread, and characters in all."""


_SPACE = r"[\x09-\x0d\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
"""What str.isspace() holds for, as one class, in one pass over the text: 17 MB in 0.11 s on one core, where
each of these 29 characters by itself takes 1.3 s, and Python 0.8 s."""


def count_characters(text: pa.ChunkedArray) -> Ints:
    """Characters of each text that are not white space by str.isspace(), (texts,)."""
    total = pc.subtract(pc.utf8_length(text), pc.count_substring_regex(text, _SPACE))
    return np.asarray(total.to_numpy(), dtype=np.int64)


def text_form(output: Output) -> str:
    """Return the text form of an output, or of the text that it was made from; forms are never compared."""
    return str(output.manifest.metadata.get("text_form", TEXT_FORM))


def read_documents(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the documents of one file, of any version.

    Args:
        columns: names of the columns to read; all by default.

    Raises:
        DataError: the file holds no documents, or those of another version.
    """
    check_schema(path, "documents")
    return pq.read_table(path, columns=None if columns is None else list(columns), partitioning=None)


def document_batches(
    path: Path, columns: Sequence[str], rows: int, most_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the documents of one file in order, with those of the columns that it has: at most `rows` of them
    in memory at a time, and fewer where their texts are long.

    Raises:
        DataError: the file holds no documents, or is damaged.
    """
    check_schema(path, "documents")
    with pq.ParquetFile(path) as file:
        names = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(rows, columns=names, use_threads=False):
            yield from _bounded(batch, most_bytes)


def _bounded(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch, about so many bytes of text at a time."""
    if "text" not in batch.schema.names or batch["text"].nbytes <= most_bytes:
        yield batch
        return
    ends = pc.cumulative_sum(pc.binary_length(batch["text"]).cast(pa.int64())).to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(ends // most_bytes)) + 1).tolist(), len(batch)]
    for start, stop in pairwise(starts):
        yield batch.slice(start, stop - start)


def training_sample(documents: Output) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the first training documents of some files, evenly spread."""
    entries = documents.entries("train-*.parquet")
    chosen = entries[:: -(-len(entries) // _FILES) or 1]
    for entry in chosen:
        left = _SAMPLE // len(chosen)
        for batch in document_batches(documents.path(entry.path), ("id", "text"), 64):
            for row in batch.to_pylist() if left > 0 else ():
                if left > 0:  # one document may be longer than that
                    yield f"document {row['id']} of {documents}", row["text"][:left]
                left -= len(row["text"])


def evaluated_texts(documents: Output) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the evaluation set that was kept out of these documents, if they name one."""
    curated: Output | None = documents
    try:
        while curated and _EVALUATION_SET not in curated.manifest.references:
            curated = curated.input("documents")
        found = curated.part(_EVALUATION_SET) if curated else None
        paths = found.paths("*.parquet") if found else []
    except DataError as error:
        log.warning("the tokenizer is not tried on the evaluation set of %s: %s", documents, error)
        return
    for path in paths:
        for batch in document_batches(path, ("id", "text"), 1024):
            for row in batch.to_pylist():
                yield f"document {row['id']} of {found}", row["text"]


def shard_bounds(characters: Ints, shard_characters: int) -> list[tuple[int, int]]:
    """Ranges of rows that hold about `shard_characters` each; without any rows one empty range."""
    if not len(characters):
        return [(0, 0)]
    ends = np.cumsum(characters, dtype=np.int64)
    number = (ends - characters) // shard_characters
    starts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    return list(zip(starts, [*starts[1:], len(characters)], strict=True))


def write_document_file(
    path: Path, form: str, has_chats: bool, parts: Iterable[tuple[int, Mapping[str, Any]]]
) -> None:
    """Write a file of documents, a part of it in memory at a time.

    Args:
        form: text form of the documents.
        has_chats: whether one of them is a chat.
        parts: rows, and columns by name, absent ones being null; all but the last have `ROW_GROUP` rows.
    """
    schema = documents_schema(form, has_chats)
    tables = (
        pa.table(
            [
                _combined(columns[field.name], field.type)
                if field.name in columns
                else pa.nulls(rows, field.type)
                for field in schema
            ],
            schema=schema,
        )
        for rows, columns in parts
    )
    write_tables(tables, schema, path)


def _combined(values: Any, kind: pa.DataType) -> pa.Array:
    """Return the values as one array, so that the file does not depend on the chunks of a table."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # pyarrow gives chunks back when there are none or many
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, kind)
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
