"""The table of all training documents in DuckDB: one row each, so that texts need not stay in memory.

The class of a document is the value of one of its labels, or a combination of several:

genre, author, source, license    columns of the documents
anything else                     an entry of the document's labels (dynasty); `-` where it has none
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yanmo.common.errors import DataError
from yanmo.engine.sql import Tables
from yanmo.formats.documents import count_characters, document_batches
from yanmo.formats.round_trip import open_tokenizer

COLUMNS = ("genre", "author", "source", "license")
NONE = "-"
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

    @property
    def is_estimate(self) -> bool:
        """Return whether there is no tokenizer."""
        return self._tokenizer is None

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


@dataclass(frozen=True)
class TrainFiles:
    """The training documents of an output, read in pieces."""

    paths: Sequence[Path]

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, int, pa.Table]]:
        """Index of the file, number of the first row, and rows of each batch of documents."""
        for index, path in enumerate(self.paths):
            start = 0
            for batch in document_batches(path, columns, _BATCH):
                table = pa.Table.from_batches([batch])
                yield index, start, table
                start += table.num_rows

    def chosen(
        self, tables: Tables, query: str, columns: Sequence[str]
    ) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the rows of a query, file by file, and the documents that they name.

        Args:
            query: gives the columns `file` and `row`, and is ordered by them.
        """
        for number, named in tables.by_file(query):
            start, row = 0, named["row"].to_numpy()
            for batch in document_batches(self.paths[number], columns, _BATCH):
                table = pa.Table.from_batches([batch])
                low, high = np.searchsorted(row, (start, start + table.num_rows)).tolist()
                if low < high:
                    yield named.slice(low, high - low), table.take(pa.array(row[low:high] - start))
                start += table.num_rows

    def labels(self) -> list[str]:
        """Names of the labels that the documents of the first batch have, sorted."""
        table = next(self.batches(("labels",)))[2]
        return sorted({name for row in table["labels"].to_pylist() for name, _ in row})

    def read(self, by: str, counting: TokenCount) -> Rows:
        """Return the table of all documents.

        Raises:
            DataError: there are no documents, or an id is not a sha256.
        """
        columns = sorted({"id", "genre", "text", *columns_of(by)})
        tables, known, unlabelled = Tables(), 0, parts_of(by)
        tables.run(_ROWS)
        for index, start, table in self.batches(columns):
            values = values_by_part(table, by)
            unlabelled = [name for name in unlabelled if not {*values[name]} - {NONE}]
            if not pc.all(pc.match_substring_regex(table["id"], "^[0-9a-f]{64}$")).as_py():
                raise DataError(
                    f"{self.paths[index]}: ids are no sha256 of 64 hexadecimal digits; run the curate stage "
                    "again"
                )
            numbers = np.arange(table.num_rows)
            tables.append(
                "rows",
                position=known + numbers,
                file=np.full(table.num_rows, index),
                row=start + numbers,
                id=table["id"],
                genre=table["genre"],
                **{"class": joined(values)},
                characters=count_characters(table["text"]),
                tokens=counting.of(table["text"]),
            )
            known += table.num_rows
        if not known:
            raise DataError("the documents have no train split; look at curate's report")
        tables.run("create type class as enum (select distinct class from rows order by class)")
        tables.run("alter table rows alter class type class")  # numbers are grouped faster than names
        return Rows(tables=tables, unlabelled=unlabelled)
