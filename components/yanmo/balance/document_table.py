"""The table of all training documents: one row each, in arrays, so that texts need not stay in memory.

56 bytes per document, whatever its length: 22 MB for the 393,600 documents of the largest corpus tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.balance.classes import NONE, columns_of, joined, parts_of, values_by_part
from yanmo.balance.token_count import TokenCount
from yanmo.common.errors import DataError
from yanmo.formats.documents import count_characters, read_documents

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint8]
"""(n, 32): document ids as bytes, not as 64 hexadecimal digits."""

_BATCH = 4096
"""Documents whose texts are held as Python objects at a time."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Place, counts and codes of each document: parallel arrays; and the names that the codes stand for."""

    file: npt.NDArray[np.int32]
    """Index into `TrainFiles.paths`."""
    row: npt.NDArray[np.int32]
    """Row in the file."""
    id: Ids
    genre: npt.NDArray[np.int32]
    """Index into `genres`."""
    group: npt.NDArray[np.int32]
    """Index into `groups`: the class of --by."""
    characters: npt.NDArray[np.int32]
    """Non-white-space characters."""
    tokens: npt.NDArray[np.int32]
    """Tokens that training predicts: those of the text and `<|eos|>`; counted or estimated."""
    genres: list[str]
    groups: list[str]
    unlabelled: Sequence[str] = ()
    """Names of --by under which no document has a value."""

    def __len__(self) -> int:
        return len(self.file)

    def of_group(self, group: str) -> Ints:
        """Positions of the documents of one class."""
        return np.flatnonzero(self.group == self.groups.index(group))

    def places(self, positions: Ints) -> tuple[Ints, Ints]:
        """File and row of the documents at `positions`."""
        return self.file[positions].astype(np.int64), self.row[positions].astype(np.int64)

    def hex_ids(self, positions: Ints) -> Iterator[str]:
        """Ids of the documents at `positions`, as 64 hexadecimal digits, one at a time."""
        return (self.id[i].tobytes().hex() for i in positions.tolist())


@dataclass(frozen=True)
class TrainFiles:
    """The training documents of an output, read in pieces."""

    paths: Sequence[Path]

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, int, pa.Table]]:
        """Index of the file, number of the first row, and rows of each batch of documents."""
        for index, path in enumerate(self.paths):
            table = read_documents(path, columns)
            for start in range(0, table.num_rows, _BATCH):
                yield index, start, table.slice(start, _BATCH)

    def chosen(self, rows: Rows, positions: Ints, columns: Sequence[str]) -> Iterator[tuple[Ints, pa.Table]]:
        """The documents at `positions`, file by file: their indexes in `positions`, and their rows."""
        file, row = rows.file[positions], rows.row[positions]
        for index in np.unique(file).tolist():
            table = read_documents(self.paths[index], columns)
            places = np.flatnonzero(file == index)
            for start in range(0, len(places), _BATCH):
                part = places[start : start + _BATCH]
                yield part, table.take(pa.array(row[part]))

    def labels(self) -> list[str]:
        """Names of the labels that the documents of the first batch have, sorted."""
        table = next(self.batches(("labels",)))[2]
        return sorted({name for row in table["labels"].to_pylist() for name, _ in row})

    def read(self, by: str, bounds: Sequence[int], counting: TokenCount) -> Rows:
        """The table of all documents.

        Raises:
            DataError: there are no documents, or an id is not a sha256.
        """
        columns = sorted({"id", "genre", "text", *columns_of(by)})
        genres, groups, unlabelled = _Names(), _Names(), parts_of(by)
        parts: list[dict[str, Any]] = []
        for index, start, table in self.batches(columns):
            characters = count_characters(table["text"])
            values = values_by_part(table, characters.tolist(), by, bounds)
            unlabelled = [name for name in unlabelled if not {*values[name]} - {NONE}]
            parts.append(
                {
                    "file": np.full(table.num_rows, index, np.int32),
                    "row": np.arange(start, start + table.num_rows, dtype=np.int32),
                    "id": _binary(table["id"], self.paths[index]),
                    "genre": genres.codes(table["genre"].to_pylist()),
                    "group": groups.codes(joined(values)),
                    "characters": characters.astype(np.int32),
                    "tokens": counting.of(table["text"]),
                }
            )
        if not parts:
            raise DataError("the documents have no train split; look at curate's report")
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return Rows(genres=genres.names, groups=groups.names, unlabelled=unlabelled, **arrays)


class _Names:
    """Gives names numbers, in the order in which they first occur."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self._code)

    def codes(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        return np.array([self._code.setdefault(name, len(self._code)) for name in names], np.int32)


def _binary(column: pa.ChunkedArray, path: Path) -> Ids:
    text = "".join(column.to_pylist())
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) != 32 * len(column) or len(text) != 64 * len(column):
        raise DataError(f"{path}: ids are no sha256 of 64 hexadecimal digits; run the curate stage again")
    return np.frombuffer(data, np.uint8).reshape(-1, 32)


def hex_ids(ids: Ids) -> list[str]:
    """Ids as 64 hexadecimal digits."""
    text = ids.tobytes().hex()
    return [text[i : i + 64] for i in range(0, len(text), 64)]
