"""Phase `plan`: over one small table (a line per document), which copies stay and what is held out.

Nothing here depends on the order of files or rows: copies are ordered by what they say, documents by the
digest of their Han characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.bytes_]

_COLUMNS = ("id", "cluster", "whole", "genre", "characters", "marks")


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """One line per mapped document, parallel arrays; `file` and `row` say where it lies."""

    file: Ints
    row: Ints
    id: npt.NDArray[np.object_]
    cluster: Bytes
    whole: Bytes
    genre: npt.NDArray[np.object_]
    characters: Ints
    marks: Ints

    def __len__(self) -> int:
        return len(self.file)


def read_candidates(paths: Sequence[Path]) -> Candidates:
    """The table of all documents in the mapped files."""
    tables = [pq.read_table(path, columns=list(_COLUMNS), partitioning=None) for path in paths]
    rows = [t.num_rows for t in tables]
    table = pa.concat_tables(tables)
    return Candidates(
        file=np.repeat(np.arange(len(paths)), rows),
        row=np.concatenate([np.arange(n) for n in rows]),
        id=_objects(table["id"]),
        cluster=_fixed(table["cluster"]),
        whole=_fixed(table["whole"]),
        genre=_objects(table["genre"]),
        characters=table["characters"].to_numpy().astype(np.int64),
        marks=table["marks"].to_numpy().astype(np.int64),
    )


def _objects(column: pa.ChunkedArray) -> npt.NDArray[np.object_]:
    return np.asarray(column.to_numpy(), dtype=object)


def _fixed(column: pa.ChunkedArray) -> Bytes:
    """Fixed-size digests as hexadecimal bytes (numpy's bytes drop NULs at the end)."""
    return np.array([value.hex() for value in column.to_pylist()], dtype="S")


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Which documents stay after exact copies are dropped, in the order of their clusters' digests."""

    kept: Ints
    """Indexes into the candidates, one per cluster: most punctuation first, then the smallest id."""
    sizes: Ints
    """Copies in each cluster, itself included."""
    dropped: Ints
    """Indexes of the other copies."""
    dropped_of: Ints
    """For each of `dropped`, the position of its cluster in `kept`."""


def drop_copies(candidates: Candidates) -> Copies:
    """Keep one document of those whose Han characters are the same."""
    c = candidates
    order = np.lexsort((c.whole, c.id.astype("S"), -c.marks, c.cluster))
    cluster = c.cluster[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = cluster[1:] != cluster[:-1]
    number = np.cumsum(is_first) - 1
    return Copies(
        kept=order[is_first],
        sizes=np.bincount(number, minlength=int(is_first.sum())).astype(np.int64),
        dropped=order[~is_first],
        dropped_of=number[~is_first],
    )


@dataclass(frozen=True, kw_only=True)
class SplitSize:
    """How much of a genre a held-out split takes."""

    characters: int
    """At most, per genre."""
    share: float
    """Of the genre's characters, at most."""
    min_documents: int
    """At least, even if they hold more characters than that, up to a fifth of the genre's documents."""


_LONGEST_SHARE = 0.1
"""A document longer than this share of a split's characters, and than the genre's median, is not held out:
one book would be the split."""


def hold_out(genre: npt.NDArray[np.object_], characters: Ints, sizes: Sequence[SplitSize]) -> list[Ints]:
    """Positions of the documents of each split, genre by genre.

    Args:
        genre: of the documents, in the order of their clusters' digests: the split is a prefix of that order,
            so the same text is held out whatever else is there or however files are ordered.
        characters: of the documents.
        sizes: of the splits, the first one served first.
    """
    result: list[list[Ints]] = [[] for _ in sizes]
    for name in sorted(set(genre.tolist())):
        left = np.flatnonzero(genre == name)
        total, count = int(characters[left].sum()), len(left)
        for number, size in enumerate(sizes):
            budget = min(size.characters, int(size.share * total))
            taken = _fill(characters[left], budget, min(size.min_documents, count // 5))
            result[number].append(left[taken])
            left = np.delete(left, taken)
    return [np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64) for found in result]


def _fill(characters: Ints, budget: int, min_documents: int) -> Ints:
    """The first documents that hold `budget` characters together, at least `min_documents`."""
    if not len(characters):
        return np.zeros(0, dtype=np.int64)
    longest = max(budget * _LONGEST_SHARE, float(np.median(characters)))
    fits = np.flatnonzero(characters <= longest)
    number = int(np.searchsorted(np.cumsum(characters[fits]), budget, side="right"))
    return fits[: max(number, min_documents)]
