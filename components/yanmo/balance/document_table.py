"""The table of all training documents: one row each, in arrays, so that texts need not stay in memory.

56 bytes per document, whatever its length. What else grows with their number: docs/measurements.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.balance.classes import NONE, columns_of, joined, parts_of, values_by_part
from yanmo.balance.token_count import TokenCount
from yanmo.common.errors import DataError
from yanmo.formats.documents import count_characters, document_batches

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
            start = 0
            for table in document_batches(path, columns, _BATCH):
                yield index, start, table
                start += table.num_rows

    def chosen(self, rows: Rows, positions: Ints, columns: Sequence[str]) -> Iterator[tuple[Ints, pa.Table]]:
        """The documents at `positions`, in the order of files: their indexes in `positions`, their rows."""
        file, row = rows.file[positions], rows.row[positions]
        order = np.lexsort((row, file))
        bounds = np.searchsorted(file[order], np.arange(len(self.paths) + 1)).tolist()
        for path, (first, last) in zip(self.paths, pairwise(bounds), strict=True):
            places, start = order[first:last], 0
            for table in document_batches(path, columns, _BATCH) if first < last else ():
                low, high = np.searchsorted(row[places], (start, start + table.num_rows)).tolist()
                if low < high:
                    yield places[low:high], table.take(pa.array(row[places[low:high]] - start))
                start += table.num_rows

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
