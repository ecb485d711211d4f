"""The table of all training documents: one row each, in arrays, so that texts need not stay in memory.

10 bytes per document, whatever its length, and 32 for its id. Where these are many, they lie in temporary
files (common/disk_arrays.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.balance.classes import NONE, columns_of, joined, parts_of, values_by_part
from yanmo.balance.quotas.drawn_order import drawn_order
from yanmo.balance.token_count import TokenCount
from yanmo.common.disk_arrays import new_array, numbers_where, slices
from yanmo.common.errors import DataError
from yanmo.formats.documents import count_characters, document_batches
from yanmo.formats.row_numbers import by_file

Ints = npt.NDArray[np.signedinteger[Any]]
Codes = npt.NDArray[np.unsignedinteger[Any]]
ID_BYTES = 32
Ids = npt.NDArray[np.uint8]
"""(n, ID_BYTES): document ids as bytes, not as 64 hexadecimal digits."""

_BATCH = 4096
"""Documents whose texts are held as Python objects at a time."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Place, counts and codes of each document: parallel arrays; and the names that the codes stand for."""

    starts: Ints
    """The position of the first document of each of `TrainFiles.paths`, and the number of all documents."""
    id: Ids
    genre: Codes
    """Index into `genres`."""
    group: Codes
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
        return len(self.characters)

    def of_group(self, group: str) -> Ints:
        """Positions of the documents of one class."""
        code = self.groups.index(group)
        return numbers_where(lambda some: self.group[some] == code, len(self))

    def ids(self, positions: Ints) -> Iterator[Ids]:
        """Ids of the documents at `positions`, some at a time."""
        return (self.id[positions[some]] for some in slices(len(positions)))

    def hex_ids(self, positions: Ints) -> Iterator[str]:
        """Ids of the documents at `positions`, as 64 hexadecimal digits, one at a time."""
        return (one.tobytes().hex() for ids in self.ids(positions) for one in ids)

    def drawn(self, positions: Ints, seed: int) -> Ints:
        """Indexes of `positions` in the order drawn by the seed."""
        return drawn_order(lambda some: self.hex_ids(positions[some]), len(positions), seed)


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

    def chosen(self, rows: Rows, positions: Ints, columns: Sequence[str]) -> Iterator[tuple[Ints, pa.Table]]:
        """Yield the documents at `positions`, file by file: their indexes in `positions`, their rows."""
        for number, places, row in by_file(rows.starts, positions):
            start = 0
            for batch in document_batches(self.paths[number], columns, _BATCH):
                table = pa.Table.from_batches([batch])
                low, high = np.searchsorted(row, (start, start + table.num_rows)).tolist()
                if low < high:
                    yield places[low:high], table.take(pa.array(row[low:high] - start))
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
        genres, groups, unlabelled = _Names(), _Names(), parts_of(by)
        count = sum(pq.read_metadata(path).num_rows for path in self.paths)
        arrays = {name: new_array(count, np.int32) for name in ("genre", "group", "characters", "tokens")}
        ids = new_array(count * ID_BYTES, np.uint8).reshape(-1, ID_BYTES)
        starts, known = np.zeros(len(self.paths) + 1, np.int64), 0
        for index, start, table in self.batches(columns):
            starts[index + 1] = start + table.num_rows
            characters = count_characters(table["text"])
            values = values_by_part(table, by)
            unlabelled = [name for name in unlabelled if not {*values[name]} - {NONE}]
            here = slice(known, known + table.num_rows)
            ids[here] = _binary(table["id"], self.paths[index])
            arrays["genre"][here] = genres.codes(table["genre"].to_pylist())
            arrays["group"][here] = groups.codes(joined(values))
            arrays["characters"][here] = characters
            arrays["tokens"][here] = counting.of(table["text"])
            known = here.stop
        if not known:
            raise DataError("the documents have no train split; look at curate's report")
        for name, names in (("genre", genres), ("group", groups)):
            codes = new_array(known, np.min_scalar_type(len(names.names)))
            for some in slices(known):
                codes[some] = arrays[name][some]
            arrays[name] = codes
        return Rows(
            starts=np.cumsum(starts),
            id=ids,
            genres=genres.names,
            groups=groups.names,
            unlabelled=unlabelled,
            **arrays,
        )


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
