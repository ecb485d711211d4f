"""Phase `plan`: decides, over one small table (a row per document), which copies stay and what is held out.

Nothing depends on the order of files or rows: copies are ordered by their content, documents by the digest of
their Han characters. The table is numpy columns, 92 bytes per document, without Python objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.formats.records import UNKNOWN_AUTHORS

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Digests = npt.NDArray[np.bytes_]
"""16 raw bytes each. numpy strips NULs from the end of a single item, but compares and sorts all 16 bytes."""

_COLUMNS = ("id", "cluster", "whole", "genre", "characters", "marks")
_MARKED = 40
"""A text with at least one punctuation mark per this many Han characters counts as punctuated."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """One row per mapped document, as parallel arrays; `file` and `row` say where it is."""

    file: Ints32
    row: Ints32
    id: Digests
    """The first half of the id."""
    cluster: Digests
    whole: Digests
    genre: Ints32
    """Index into `genres`."""
    genres: tuple[str, ...]
    group: Digests
    """Digest of the author or source, where the split goes by it; else empty."""
    characters: Ints32
    marks: Ints32
    han: Ints32
    lacunae: Ints32
    forbidden: Bools | None = None
    """Whether the channel allows no text of its licence; None where it allows every licence."""

    def __len__(self) -> int:
        return len(self.file)

    @property
    def is_punctuated(self) -> Bools:
        """Whether each text counts as punctuated."""
        return self.marks * _MARKED >= self.han

    def order(self) -> Ints:
        """Indexes of the documents, so that the best of any set of copies comes first.

        Allowed before forbidden, punctuated before unpunctuated, then fewer lost characters, longer, more
        punctuation, smaller id.
        """
        worse = (self.whole, self.id, -self.marks, -self.han, self.lacunae, ~self.is_punctuated)
        return np.lexsort(worse if self.forbidden is None else (*worse, self.forbidden))

    @cached_property
    def ranks(self) -> Ints32:
        """The place of each document in `order`."""
        ranks = np.empty(len(self), dtype=np.int32)
        ranks[self.order()] = np.arange(len(self), dtype=np.int32)
        return ranks


def read_candidates(mapped: Sequence[Path], signed: Sequence[Path], group: str = "") -> Candidates:
    """The table of all documents in the mapped files.

    Args:
        group: column that must not be divided between splits, `author` or `source`; "" for none.
    """
    columns = [*_COLUMNS, *([group] if group else [])]
    parts = [_read(path, columns, group) for path in mapped]
    rows = [len(part["id"]) for part in parts]
    signs = pa.concat_tables(
        [pq.read_table(p, columns=["han", "lacunae"], partitioning=None) for p in signed]
    )
    genres = tuple(sorted({name for part in parts for name in part["genres"]}))
    code = {name: number for number, name in enumerate(genres)}
    genre = [np.array([code[g] for g in p["genres"]], np.int32)[p["genre"]] for p in parts]
    joined = {
        name: np.concatenate([part[name] for part in parts])
        for name in ("id", "cluster", "whole", "group", "characters", "marks")
    }
    return Candidates(
        file=np.repeat(np.arange(len(mapped), dtype=np.int32), rows),
        row=np.concatenate([np.arange(n, dtype=np.int32) for n in rows]),
        genre=np.concatenate(genre),
        genres=genres,
        han=signs["han"].to_numpy(),
        lacunae=signs["lacunae"].to_numpy(),
        **joined,
    )


def _read(path: Path, columns: list[str], group: str) -> dict[str, npt.NDArray[np.generic]]:
    table = pq.read_table(path, columns=columns, partitioning=None)
    genre = pc.dictionary_encode(table["genre"].combine_chunks())
    genre = genre.combine_chunks() if isinstance(genre, pa.ChunkedArray) else genre
    return {
        "id": _halves(table["id"]),
        "cluster": raw_digests(table["cluster"]),
        "whole": raw_digests(table["whole"]),
        "genre": genre.indices.to_numpy(),
        "genres": genre.dictionary.to_pylist(),
        "group": name_digests(table[group]) if group else np.zeros(table.num_rows, dtype="S16"),
        "characters": table["characters"].to_numpy(),
        "marks": table["marks"].to_numpy(),
    }


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

    unique: Ints
    """For each position the best copy, an index into the candidates."""
    position: Ints
    """For each candidate the position of its text."""


def find_exact_copies(candidates: Candidates) -> ExactCopies:
    """Documents whose Han characters are the same, whatever their script and punctuation."""
    order = np.lexsort((candidates.ranks, candidates.cluster))
    cluster = candidates.cluster[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = cluster[1:] != cluster[:-1]
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.cumsum(is_first) - 1
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
