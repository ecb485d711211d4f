"""The table of all training documents in DuckDB: one row each, so that texts need not stay in memory.

The class of a document is the value of one of its labels, or a combination of several:

genre, author, source, license    columns of the documents
anything else                     an entry of the document's labels (dynasty); `-` where it has none
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yanmo.common.errors import DataError
from yanmo.engine.maps import ordered_map
from yanmo.engine.sql import Tables
from yanmo.formats.documents import count_characters, document_batches
from yanmo.formats.round_trip import open_tokenizer

COLUMNS = ("genre", "author", "source", "license")
NONE = "-"
Ints = npt.NDArray[np.signedinteger[Any]]
_BATCH = 4096
"""Documents whose texts are held as Python objects at a time."""
_ENCODED = 256
"""Texts that a tokenizer is given at a time."""

_ROWS = """
create or replace table rows (
    position integer, file integer, row integer, id varchar, genre varchar, class varchar,
    characters integer, tokens integer
)
"""
"""position: number in the order of files and rows. class: that of --by. characters: non-white-space ones.
tokens: those that training predicts, of the text and `<|eos|>`, counted or estimated."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The table `rows`, in a database in which the quotas are filled."""

    tables: Tables
    unlabelled: Sequence[str] = ()
    """Names of --by under which no document has a value."""

    def names(self, column: str) -> list[str]:
        """Return the genres or classes, in the order in which they first occur."""
        query = f"select {column} from rows group by {column} order by min(position)"
        return [name for (name,) in self.tables.rows(query)]


DRAWN = "sha256($seed || chr(0) || id)"
"""The order in which documents are taken depends on the seed and on their ids, not on their numbers."""


def columns_of(by: str) -> list[str]:
    """Return the columns of the documents that `by` needs."""
    return sorted({name if name in COLUMNS else "labels" for name in parts_of(by)})


def parts_of(by: str) -> list[str]:
    """Return the names that `by` crosses."""
    return [name.strip() for name in by.split("+")]


def values_by_part(table: pa.Table, by: str) -> dict[str, list[str]]:
    """Return the value of each row of a batch under each name of `by`; `-` for none.

    Args:
        table: documents with the columns that `columns_of(by)` names.
        by: names joined by `+`.
    """
    return {name: _values(table, name) for name in parts_of(by)}


def joined(values: Mapping[str, list[str]]) -> list[str]:
    """Return the class of each row, from its values under each name."""
    return ["/".join(row) for row in zip(*values.values(), strict=True)]


def _values(table: pa.Table, name: str) -> list[str]:
    if name in COLUMNS:
        return [value or NONE for value in table[name].to_pylist()]
    return [dict(row).get(name) or NONE for row in table["labels"].to_pylist()]


class TokenCount:
    """Counts tokens with a tokenizer.json; without one, estimates one token per character and line break.

    The estimate is near what a tokenizer with mostly single characters gives: the demo's, with 8,192 tokens,
    gives 1.006 tokens per character (from the log of `yanmo tokenize`).
    """

    def __init__(self, tokenizer: Path | None = None) -> None:
        self._tokenizer: Any = None
        if tokenizer is not None:
            self._tokenizer = open_tokenizer(tokenizer)

    def of(self, texts: pa.ChunkedArray | Sequence[str]) -> npt.NDArray[np.int32]:
        """Predicted tokens of each text."""
        if self._tokenizer is None:
            array = texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([texts], pa.string())
            return np.asarray(pc.utf8_length(array).to_numpy(), dtype=np.int32) + np.int32(1)
        plain = texts.to_pylist() if isinstance(texts, pa.ChunkedArray) else list(texts)
        found: list[int] = []
        for start in range(0, len(plain), _ENCODED):
            batch = plain[start : start + _ENCODED]
            found += [
                len(e.ids) + 1 for e in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            ]
        return np.array(found, np.int32)


token_count = functools.lru_cache(maxsize=1)(TokenCount)
"""The `TokenCount` of this process: a tokenizer is read once, for all of its tasks."""


@dataclass(frozen=True, kw_only=True)
class _File:
    """One file to read."""

    path: Path
    by: str
    tokenizer: Path | None


def read_rows(paths: Sequence[Path], by: str, tokenizer: Path | None, workers: int, documents: int) -> Rows:
    """Return the table of all documents.

    Args:
        paths: files of the train split, for tasks.
        tokenizer: a tokenizer.json, for tasks, or None to estimate tokens.
        documents: how many there are, about.

    Raises:
        DataError: there are no documents, or an id is not a sha256.
    """
    tables, known, unlabelled = Tables(documents=documents), 0, parts_of(by)
    tables.run(_ROWS)
    files = (_File(path=path, by=by, tokenizer=tokenizer) for path in paths)
    with ordered_map(read_file, files, workers) as results:
        for number, (rows, without) in enumerate(results):
            unlabelled = [name for name in unlabelled if name in without]
            tables.append(
                "rows",
                position=known + np.arange(len(rows)),
                file=np.full(len(rows), number),
                row=np.arange(len(rows)),
                **{name: rows[name] for name in rows.column_names},
            )
            known += len(rows)
    if not known:
        raise DataError("the documents have no train split; look at curate's report")
    tables.run("create type class as enum (select distinct class from rows order by class)")
    tables.run("alter table rows alter class type class")  # numbers are grouped faster than names
    return Rows(tables=tables, unlabelled=unlabelled)


def read_file(task: _File) -> tuple[pa.Table, list[str]]:
    """Return the id, genre, class, characters and tokens of each document of a file, and the names of --by
    under which none has a value."""
    unlabelled, counting, found = parts_of(task.by), token_count(task.tokenizer), []
    for batch in document_batches(task.path, sorted({"id", "genre", "text", *columns_of(task.by)}), _BATCH):
        table = pa.Table.from_batches([batch])
        values = values_by_part(table, task.by)
        unlabelled = [name for name in unlabelled if not {*values[name]} - {NONE}]
        if not pc.all(pc.match_substring_regex(table["id"], "^[0-9a-f]{64}$")).as_py():
            raise DataError(
                f"{task.path}: ids are no sha256 of 64 hexadecimal digits; run the curate stage again"
            )
        columns = {"id": table["id"], "genre": table["genre"], "class": joined(values)}
        columns["characters"] = count_characters(table["text"])
        found.append(pa.table({**columns, "tokens": counting.of(table["text"])}))
    return pa.concat_tables(found) if found else pa.table({}), unlabelled


def chosen_rows(path: Path, row: Ints, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """Yield some documents of a file, and which of `row`, rising numbers of rows, is the first of them."""
    start = 0
    for batch in document_batches(path, columns, _BATCH):
        low, high = np.searchsorted(row, (start, start + len(batch))).tolist()
        if low < high:
            yield low, pa.Table.from_batches([batch.take(pa.array(row[low:high] - start))])
        start += len(batch)


def labels_of(path: Path) -> list[str]:
    """Return the names of the labels that the first documents of a file have, sorted."""
    table = next(document_batches(path, ("labels",), _BATCH))
    return sorted({name for row in table["labels"].to_pylist() for name, _ in row})
