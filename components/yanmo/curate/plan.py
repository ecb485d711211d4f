"""Phase `plan`: decides, over one small table (a row per document), which copies stay.

Nothing depends on the order of files or rows: copies are ordered by their content, documents by the digest of
what is compared of them. The table is numpy columns, 17 bytes per document, without Python objects. What is
longer, ids and digests, is read from the mapped files where it is needed, if possible a file at a time. Large
columns lie in temporary files (common/disk_arrays.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.common.disk_arrays import (
    group_starts,
    groups_of,
    new_array,
    numbers_where,
    release_pages,
    rows_of,
    slices,
    sorted_order,
    taken,
    tied,
)
from yanmo.curate.duplicates.shingles import SHINGLE
from yanmo.formats.records import UNKNOWN_AUTHORS
from yanmo.formats.row_numbers import by_file, places_of

Ints = npt.NDArray[np.signedinteger[Any]]
Ints32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Digests = npt.NDArray[np.bytes_]
"""16 raw bytes each. numpy strips NULs from the end of a single item, but compares and sorts all 16 bytes."""

_MARKED = 40
"""A text with at least one punctuation mark per this many units that are compared counts as punctuated."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """One row per mapped document, as parallel arrays in the order of files and rows."""

    starts: Ints
    """The number of the first document of each mapped file, and the number of all documents."""
    ids: Ints32
    """The place of each id among all different ids."""
    genre: Ints32
    """Index into `genres`."""
    genres: tuple[str, ...]
    group: Digests | None
    """Digest of the author or source, empty where unknown; None where the split goes by neither."""
    characters: Ints32
    is_long: Bools
    """Whether it has the units of a shingle: others are not compared."""
    ranks: Ints32
    """The place of each document in `order_of_copies`."""
    forbidden: Bools | None = None
    """Whether the channel allows no text of its licence; None where it allows every licence."""

    def __len__(self) -> int:
        return len(self.characters)

    def places(self, index: Ints) -> tuple[Ints32, Ints32]:
        """Return the mapped file of some documents, and their row in it."""
        return places_of(self.starts, index)

    def totals(self, index: Ints) -> tuple[list[int], list[int]]:
        """Of some documents their number and their characters, each by genre."""
        documents, characters = (np.zeros(len(self.genres), np.int64) for _ in range(2))
        for some in slices(len(index)):
            here = index[some]
            genre, size = self.genre[here], self.characters[here]
            documents += np.bincount(genre, minlength=len(documents))
            characters += np.bincount(genre, size, len(documents)).astype(np.int64)  # exact below 2^53
        return documents.tolist(), characters.tolist()


def order_of_copies(
    *,
    ids: Ints32,
    whole: Callable[[Ints], Digests],
    marks: Ints32,
    units: Ints32,
    lacunae: Ints32,
    forbidden: Bools | None = None,
) -> Ints32:
    """Indexes of documents, so that the best of any set of copies comes first.

    Allowed before forbidden, punctuated before unpunctuated, then fewer lost characters, longer, more
    punctuation, smaller id, smaller digest of all fields.

    Args:
        ids: as in `Candidates`.
        whole: gives the digests of all fields of some documents: of those that are equal in all else.
    """

    def worse(some: Any) -> tuple[npt.NDArray[Any], ...]:
        is_bare = marks[some] * _MARKED < units[some]
        found = (ids[some], -marks[some], -units[some], lacunae[some], is_bare)
        return found if forbidden is None else (*found, forbidden[some])

    order = sorted_order(worse, len(ids))
    is_new = group_starts(worse, order)
    places = tied(is_new)
    if len(places):
        equal = order[places]
        order[places] = equal[np.lexsort((whole(equal), np.cumsum(is_new[places])))]
    return order


def read_candidates(
    mapped: Sequence[Path], signed: Sequence[Path], group: str = "", forbidden: Bools | None = None
) -> Candidates:
    """Return the table of all documents in the mapped files.

    Args:
        group: column that must not be divided between splits, `author` or `source`; "" for none.
        forbidden: as in `Candidates`.
    """
    starts = starts_of(mapped)
    count = int(starts[-1])
    ids = places_of_ids(mapped, count)
    signs = _read_columns(signed, ["units", "lacunae"], count)
    best = order_of_copies(
        ids=ids,
        whole=lambda index: read_digests(mapped, starts, index, "whole"),
        marks=_read_columns(mapped, ["marks"], count)["marks"],
        units=signs["units"],
        lacunae=signs["lacunae"],
        forbidden=forbidden,
    )
    ranks, is_long = new_array(count, np.int32), new_array(count, np.bool_)
    for some in slices(count):
        ranks[best[some]] = rows_of(some)
        is_long[some] = signs["units"][some] >= SHINGLE
    del signs, best
    columns = _read_columns(mapped, ["genre", "characters", *([group] if group else [])], count)
    names: list[str] = columns.pop("genres")
    order = np.argsort(np.array(names, dtype=object), kind="stable")
    code = np.empty(len(names), np.int32)
    code[order] = np.arange(len(names), dtype=np.int32)
    for some in slices(count):
        columns["genre"][some] = code[columns["genre"][some]]
    return Candidates(
        starts=starts,
        ids=ids,
        genre=columns["genre"],
        genres=tuple(sorted(names)),
        group=columns[group] if group else None,
        characters=columns["characters"],
        is_long=is_long,
        ranks=ranks,
        forbidden=forbidden,
    )


def starts_of(mapped: Sequence[Path]) -> Ints:
    """`Candidates.starts` of the mapped files."""
    rows = [pq.read_metadata(path).num_rows for path in mapped]
    return np.cumsum([0, *rows], dtype=np.int64)


def places_of_ids(mapped: Sequence[Path], count: int) -> Ints32:
    """`Candidates.ids`, by the first half of each id: its first eight bytes, then the others where they tie.

    Sorting whole halves takes twice the memory.
    """
    words = _words_of_ids(mapped, count, 0)
    order = sorted_order(lambda some: [words[some]], count)
    is_new = group_starts(lambda some: [words[some]], order)
    del words
    places = tied(is_new)
    if len(places):  # a document that is there again; two others are once in 2 million corpora of 4 million
        words = _words_of_ids(mapped, count, 1)
        equal = order[places]
        equal = equal[np.lexsort((words[equal], np.cumsum(is_new[places])))]
        order[places] = equal
        is_new[places[1:]] |= words[equal[1:]] != words[equal[:-1]]
        del words
    return groups_of(order, is_new)


def _words_of_ids(mapped: Sequence[Path], count: int, which: int) -> npt.NDArray[np.uint64]:
    """Return the first or the second eight bytes of each id, as a number."""
    words = new_array(count, np.uint64)
    for start, halves in read_each(mapped, "id"):
        words[start : start + len(halves)] = halves.view(">u8")[which::2]
    return words


def read_each(mapped: Sequence[Path], column: str) -> Iterator[tuple[int, Digests]]:
    """Yield digests of a column, or first halves of ids, file by file: number of the first, and all."""
    start = 0
    for path in mapped:
        digests = _values(column, pq.read_table(path, columns=[column], partitioning=None)[column], {})
        yield start, digests
        start += len(digests)


def read_clusters(mapped: Sequence[Path], count: int) -> Digests:
    """Return the digest of what is compared of each of the `count` documents."""
    digests: Digests = _read_columns(mapped, ["cluster"], count)["cluster"]
    return digests


def read_digests(mapped: Sequence[Path], starts: Ints, index: Ints, column: str) -> Digests:
    """Return the digests of a column of some documents, by their numbers, in that order.

    Args:
        starts: `Candidates.starts`.
    """
    found = np.empty(len(index), "S16")
    for number, here, rows in by_file(starts, index):
        table = pq.read_table(mapped[number], columns=[column], partitioning=None)
        found[here] = _values(column, table[column], {})[rows]
    return found


def _read_columns(paths: Sequence[Path], columns: Sequence[str], count: int) -> dict[str, Any]:
    """Columns of all files, each as one array; `genre` as codes, for the names in `genres`."""
    found: dict[str, Any] = {
        name: new_array(count, np.int32 if name in _NUMBERS else "S16") for name in columns
    }
    codes: dict[str, int] = {}
    start = 0
    for path in paths:
        table = pq.read_table(path, columns=list(columns), partitioning=None)
        for name in columns:
            found[name][start : start + len(table)] = _values(name, table[name], codes)
        start += len(table)
        release_pages()
    return found | ({"genres": list(codes)} if "genre" in columns else {})


_NUMBERS = frozenset(("genre", "characters", "marks", "units", "lacunae"))


def _values(name: str, column: pa.ChunkedArray, codes: dict[str, int]) -> npt.NDArray[Any]:
    if name == "id":
        return _halves(column)
    if name in ("cluster", "whole"):
        return raw_digests(column)
    if name == "genre":
        coded = pc.dictionary_encode(column.combine_chunks())
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        known = [codes.setdefault(genre, len(codes)) for genre in coded.dictionary.to_pylist()]
        return np.asarray(np.array(known, np.int32)[coded.indices.to_numpy()])
    return np.asarray(column.to_numpy()) if name in _NUMBERS else name_digests(column)


def is_among(digests: Digests, few: Digests) -> Bools:
    """Return which of many digests are among a few; `numpy.isin` takes 80 bytes for each of the many."""
    found = np.zeros(len(digests), np.bool_)
    for some in slices(len(digests) if len(few) else 0):
        found[some] = np.isin(digests[some], few)
    return found


def raw_digests(column: pa.ChunkedArray) -> Digests:
    """Return a column of binary(16) as an array."""
    if not len(column):
        return np.zeros(0, dtype="S16")
    return np.concatenate([_buffer(chunk.cast(pa.binary())) for chunk in column.chunks]).view("S16")


def _halves(column: pa.ChunkedArray) -> Digests:
    """Return the first 32 of 64 hexadecimal digits, as 16 bytes."""
    if not len(column):
        return np.zeros(0, dtype="S16")
    halves = pc.utf8_slice_codeunits(column, 0, 32)
    digits = np.concatenate([_buffer(chunk.cast(pa.binary())) for chunk in halves.chunks])
    values = np.where(digits >= ord("a"), digits - (ord("a") - 10), digits - ord("0")).astype(np.uint8)
    return (values[::2] << 4 | values[1::2]).view("S16")


def hex_digits(digests: Digests) -> pa.Array:
    """Return each digest as 32 hexadecimal digits."""
    digits = np.frombuffer(np.ascontiguousarray(digests).tobytes().hex().encode(), dtype=np.uint8)
    offsets = np.arange(len(digests) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(digests), pa.py_buffer(offsets), pa.py_buffer(digits))


def _buffer(chunk: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all values of a binary array, one after the other."""
    offsets = np.frombuffer(chunk.buffers()[1], dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = chunk.buffers()[2]
    return np.frombuffer(data if data is not None else b"", dtype=np.uint8)[offsets[0] : offsets[-1]]


def name_digests(column: pa.ChunkedArray) -> Digests:
    """Return a digest of each name, empty for unknown ones."""
    names = pc.dictionary_encode(column.combine_chunks())
    names = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    digests = [name_digest(name) for name in names.dictionary.to_pylist()]
    return np.asarray(np.array(digests or [b""], dtype="S16")[names.indices.to_numpy()])


def name_digest(name: str) -> bytes:
    """Digest of an author or a source; empty for unknown ones."""
    return b"" if name.lower() in UNKNOWN_AUTHORS else hashlib.sha256(name.encode()).digest()[:16]


@dataclass(frozen=True, kw_only=True)
class ExactCopies:
    """Positions: one document per text that is compared, in the order of the texts' digests."""

    unique: Ints32
    """For each position the best copy, an index into the candidates."""
    position: Ints32
    """For each candidate the position of its text."""


def find_exact_copies(cluster: Digests, ranks: Ints32) -> ExactCopies:
    """Return documents of which the same is compared (mapped_texts.py).

    Args:
        cluster: of each document the digest of what is compared.
        ranks: as in `Candidates`.
    """
    order = sorted_order(lambda some: (ranks[some], cluster[some]), len(ranks))
    is_first = group_starts(lambda some: [cluster[some]], order)
    first = numbers_where(lambda some: is_first[:-1][some], len(order))
    return ExactCopies(unique=taken(order, first), position=groups_of(order, is_first))
