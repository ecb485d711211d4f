"""Phase `plan`: decides, over one small table (a row per document), which copies stay and what is held out.

Nothing depends on the order of files or rows: copies are ordered by their content, documents by the digest of
their Han characters. The table is numpy columns, 48 bytes per document, without Python objects; the ids are
read from the mapped files where they are needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.formats.records import UNKNOWN_AUTHORS

Ints = npt.NDArray[np.signedinteger[Any]]
Ints32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Digests = npt.NDArray[np.bytes_]
"""16 raw bytes each. numpy strips NULs from the end of a single item, but compares and sorts all 16 bytes."""

_COLUMNS = ("cluster", "genre", "characters")
_FOR_RANKS = ("id", "whole", "marks")
_MARKED = 40
"""A text with at least one punctuation mark per this many Han characters counts as punctuated."""
_AT_A_TIME = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """One row per mapped document, as parallel arrays in the order of files and rows."""

    file: Ints32
    row: Ints32
    cluster: Digests
    genre: Ints32
    """Index into `genres`."""
    genres: tuple[str, ...]
    group: Digests | None
    """Digest of the author or source, empty where unknown; None where the split goes by neither."""
    characters: Ints32
    han: Ints32
    ranks: Ints32
    """The place of each document in `order_of_copies`."""
    forbidden: Bools | None = None
    """Whether the channel allows no text of its licence; None where it allows every licence."""

    def __len__(self) -> int:
        return len(self.file)


def order_of_copies(
    *,
    id: Digests,
    whole: Digests,
    marks: Ints32,
    han: Ints32,
    lacunae: Ints32,
    forbidden: Bools | None = None,
) -> Ints:
    """Indexes of documents, so that the best of any set of copies comes first.

    Allowed before forbidden, punctuated before unpunctuated, then fewer lost characters, longer, more
    punctuation, smaller id.

    Args:
        id: the first halves of the ids.
    """
    is_bare = marks * _MARKED < han
    worse = (whole, id, -marks, -han, lacunae, is_bare)
    return np.lexsort(worse if forbidden is None else (*worse, forbidden))


def read_candidates(
    mapped: Sequence[Path], signed: Sequence[Path], group: str = "", forbidden: Bools | None = None
) -> Candidates:
    """The table of all documents in the mapped files.

    Args:
        group: column that must not be divided between splits, `author` or `source`; "" for none.
        forbidden: as in `Candidates`.
    """
    rows = [pq.read_metadata(path).num_rows for path in mapped]
    count = sum(rows)
    columns = _read_columns(mapped, [*_COLUMNS, *([group] if group else [])], count)
    names: list[str] = columns.pop("genres")
    order = np.argsort(np.array(names, dtype=object), kind="stable")
    code = np.empty(len(names), np.int32)
    code[order] = np.arange(len(names), dtype=np.int32)
    signs = _read_columns(signed, ["han", "lacunae"], count)
    best = order_of_copies(
        **_read_columns(mapped, _FOR_RANKS, count),
        han=signs["han"],
        lacunae=signs["lacunae"],
        forbidden=forbidden,
    )
    ranks = np.empty(count, dtype=np.int32)
    ranks[best] = np.arange(count, dtype=np.int32)
    return Candidates(
        file=np.repeat(np.arange(len(mapped), dtype=np.int32), rows),
        row=np.concatenate([np.arange(n, dtype=np.int32) for n in rows]),
        cluster=columns["cluster"],
        genre=code[columns["genre"]] if count else columns["genre"],
        genres=tuple(sorted(names)),
        group=columns[group] if group else None,
        characters=columns["characters"],
        han=signs["han"],
        ranks=ranks,
        forbidden=forbidden,
    )


def read_ids(mapped: Sequence[Path], count: int) -> Digests:
    """The first half of the id of each of the `count` documents in the mapped files."""
    return np.asarray(_read_columns(mapped, ["id"], count)["id"])


def _read_columns(paths: Sequence[Path], columns: Sequence[str], count: int) -> dict[str, Any]:
    """Columns of all files, each as one array; `genre` as codes, for the names in `genres`."""
    found: dict[str, Any] = {
        name: np.empty(count, np.int32 if name in _NUMBERS else "S16") for name in columns
    }
    codes: dict[str, int] = {}
    start = 0
    for path in paths:
        table = pq.read_table(path, columns=list(columns), partitioning=None)
        for name in columns:
            found[name][start : start + len(table)] = _values(name, table[name], codes)
        start += len(table)
    return found | ({"genres": list(codes)} if "genre" in columns else {})


_NUMBERS = frozenset(("genre", "characters", "marks", "han", "lacunae"))


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
    """Which of many digests are among a few; `numpy.isin` takes 80 bytes of memory for each of the many."""
    found = np.zeros(len(digests), np.bool_)
    for start in range(0, len(digests) if len(few) else 0, _AT_A_TIME):
        some = slice(start, start + _AT_A_TIME)
        found[some] = np.isin(digests[some], few)
    return found


def raw_digests(column: pa.ChunkedArray) -> Digests:
    """A column of binary(16) as an array."""
    if not len(column):
        return np.zeros(0, dtype="S16")
    return np.concatenate([_buffer(chunk.cast(pa.binary())) for chunk in column.chunks]).view("S16")


def _halves(column: pa.ChunkedArray) -> Digests:
    """The first 32 of 64 hexadecimal digits, as 16 bytes."""
    if not len(column):
        return np.zeros(0, dtype="S16")
    halves = pc.utf8_slice_codeunits(column, 0, 32)
    digits = np.concatenate([_buffer(chunk.cast(pa.binary())) for chunk in halves.chunks])
    values = np.where(digits >= ord("a"), digits - (ord("a") - 10), digits - ord("0")).astype(np.uint8)
    return (values[::2] << 4 | values[1::2]).view("S16")


def hex_digits(digests: Digests) -> pa.Array:
    """Each digest as 32 hexadecimal digits."""
    digits = np.frombuffer(np.ascontiguousarray(digests).tobytes().hex().encode(), dtype=np.uint8)
    offsets = np.arange(len(digests) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(digests), pa.py_buffer(offsets), pa.py_buffer(digits))


def _buffer(chunk: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all values of a binary array, one after the other."""
    offsets = np.frombuffer(chunk.buffers()[1], dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = chunk.buffers()[2]
    return np.frombuffer(data if data is not None else b"", dtype=np.uint8)[offsets[0] : offsets[-1]]


def name_digests(column: pa.ChunkedArray) -> Digests:
    """A digest of each name, empty for unknown ones."""
    names = pc.dictionary_encode(column.combine_chunks())
    names = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    digests = [name_digest(name) for name in names.dictionary.to_pylist()]
    return np.asarray(np.array(digests or [b""], dtype="S16")[names.indices.to_numpy()])


def name_digest(name: str) -> bytes:
    """Digest of an author or a source; empty for unknown ones."""
    return b"" if name.lower() in UNKNOWN_AUTHORS else hashlib.sha256(name.encode()).digest()[:16]


@dataclass(frozen=True, kw_only=True)
class ExactCopies:
    """Positions: one document per text (by Han characters), in the order of the texts' digests."""

    unique: Ints32
    """For each position the best copy, an index into the candidates."""
    position: Ints32
    """For each candidate the position of its text."""


def find_exact_copies(candidates: Candidates) -> ExactCopies:
    """Documents whose Han characters are the same, whatever their script and punctuation."""
    order = np.lexsort((candidates.ranks, candidates.cluster)).astype(np.int32)
    is_first = np.ones(len(order), dtype=np.bool_)
    for start in range(1, len(order), _AT_A_TIME):
        cluster = candidates.cluster[order[start - 1 : start + _AT_A_TIME]]
        is_first[start : start + _AT_A_TIME] = cluster[1:] != cluster[:-1]
    position = np.empty(len(order), dtype=np.int32)
    position[order] = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    return ExactCopies(unique=order[is_first], position=position)


@dataclass(frozen=True, kw_only=True)
class SplitSize:
    """Size of a held-out split, per genre."""

    characters: int
    """Largest number of characters, per genre."""
    share: float
    """Largest share of the genre's characters."""
    min_documents: int
    """Least documents, even if they exceed the characters; at most a fifth of the genre's groups."""


_LONGEST_SHARE = 0.1
"""A document or group that is longer than this share of a split's characters, and than the genre's median, is
not held out: otherwise one book, or one prolific author, would make up the split."""


def hold_out(genre: Ints32, characters: Ints32, group: Ints, sizes: Sequence[SplitSize]) -> list[Ints]:
    """Indexes of the documents of each split, genre by genre; groups are never divided within a genre.

    Args:
        genre: genre of each document, as a number.
        characters: characters of each document.
        group: number of each document's cluster, author or source. Groups are taken in this order, so the
            split is a prefix of it: the same text is held out whatever else is there.
        sizes: size of each split; the first one is filled first.
    """
    result: list[list[Ints]] = [[] for _ in sizes]
    for number in np.unique(genre):
        documents = np.flatnonzero(genre == number)
        _, unit = np.unique(group[documents], return_inverse=True)
        length = np.bincount(unit, weights=characters[documents]).astype(np.int64)
        left = np.arange(len(length))
        total = int(length.sum())
        for found, size in zip(result, sizes, strict=True):
            budget = min(size.characters, int(size.share * total))
            taken = _fill(length[left], budget, min(size.min_documents, len(length) // 5))
            found.append(documents[np.isin(unit, left[taken])])
            left = np.delete(left, taken)
    return [np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64) for found in result]


def _fill(characters: Ints, budget: int, min_units: int) -> Ints:
    """The first units that hold `budget` characters together, at least `min_units`."""
    if not len(characters):
        return np.zeros(0, dtype=np.int64)
    longest = max(budget * _LONGEST_SHARE, float(np.median(characters)))
    fits = np.flatnonzero(characters <= longest)
    number = int(np.searchsorted(np.cumsum(characters[fits]), budget, side="right"))
    return fits[: max(number, min_units)]
