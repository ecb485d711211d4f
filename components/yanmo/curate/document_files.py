"""Phase `write`: the planned documents as documents v1, in the order of their ids.

Two passes (row_pieces.py), each in several processes: every mapped file is cut into one piece per output
file, then each output file is joined from its pieces, a row group at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.common.disk_arrays import new_array, sorted_order, taken
from yanmo.common.logs import Progress
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapping import CHAT_COLUMNS, DOCUMENT_COLUMNS
from yanmo.curate.plan import Digests, hex_digits, raw_digests
from yanmo.curate.tally import sort_genres
from yanmo.engine.maps import add_made, ordered_map, remove_folder
from yanmo.formats.documents import shard_bounds, write_document_file
from yanmo.formats.row_pieces import Layout, Pieces, cut_file
from yanmo.store.commit import Attempt

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, kw_only=True)
class _File:
    """One output file."""

    name: str
    split: str
    positions: Ints
    """Positions of its documents, in the order of ids."""


@dataclass(frozen=True, kw_only=True)
class _Join:
    """One output file to join from its pieces."""

    pieces: Pieces
    split: str
    joined: Ints
    """Rows whose cluster is named by another document."""
    joined_cluster: Digests
    """The names of their clusters."""
    cluster_size: Ints
    form: str
    out: Path


def write_splits(
    attempt: Attempt,
    corpus: Corpus,
    splits: Mapping[str, Ints],
    shard_characters: int,
    workers: int,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, dict[str, int]]]:
    """Write the corpus' documents as `<split>-00000-of-0000N.parquet`.

    Args:
        splits: split -> positions of its documents.
        meanwhile: called in this process while workers join the files.

    Returns:
        {"documents": split -> genre -> number, "characters": split -> genre -> number}
    """
    files = [file for name, held in splits.items() for file in files_of(corpus, name, held, shard_characters)]
    layout = layout_of(corpus, files, attempt.path("scratch/pieces").parent)
    with ordered_map(cut_file, layout.cuts(), workers) as results:
        for _ in results:
            pass
    joins = _joins(attempt, corpus, files, layout)
    progress = Progress(
        log, f"wrote {' and '.join(splits)}", sum(len(f.positions) for f in files), unit="documents"
    )
    with ordered_map(
        join_pieces, joins, workers, "fewer --workers or a smaller --shard-characters"
    ) as results:
        meanwhile()
        for file, rows in zip(files, results, strict=True):
            add_made(attempt, [file.name])
            progress.add(rows)
    remove_folder(layout.scratch)
    counts = {
        name: count_by_genre(corpus, taken(corpus.copies.unique, held)) for name, held in splits.items()
    }
    return {what: {name: counts[name][what] for name in splits} for what in ("documents", "characters")}


def files_of(corpus: Corpus, split: str, positions: Ints, shard_characters: int) -> list[_File]:
    """Return the output files of a split: which documents are in which, in the order of ids."""
    chosen = taken(corpus.copies.unique, positions)
    order = sorted_order(lambda some: [corpus.candidates.ids[chosen[some]]], len(chosen))
    bounds = shard_bounds(taken(corpus.candidates.characters, taken(chosen, order)), shard_characters)
    ordered = taken(positions, order)
    return [
        _File(
            name=f"{split}-{i:05d}-of-{len(bounds):05d}.parquet",
            split=split,
            positions=ordered[start:stop],
        )
        for i, (start, stop) in enumerate(bounds)
    ]


def layout_of(corpus: Corpus, files: Sequence[_File], scratch: Path) -> Layout:
    """Return how their documents are gathered from the mapped files."""
    ends = np.cumsum([len(f.positions) for f in files]).tolist()
    chosen = new_array(ends[-1], np.int32)
    for file, (start, stop) in zip(files, pairwise([0, *ends]), strict=True):
        chosen[start:stop] = corpus.copies.unique[file.positions]
    return Layout(
        paths=corpus.paths,
        starts=corpus.candidates.starts,
        index=chosen,
        bounds=list(pairwise([0, *ends])),
        scratch=scratch,
        columns=(*DOCUMENT_COLUMNS, *CHAT_COLUMNS, "cluster"),
    )


def _joins(attempt: Attempt, corpus: Corpus, files: Sequence[_File], layout: Layout) -> Iterator[_Join]:
    sizes = corpus.cluster_sizes
    joined = [np.flatnonzero(corpus.cluster[file.positions] != file.positions) for file in files]
    named_by = [corpus.cluster[file.positions[rows]] for file, rows in zip(files, joined, strict=True)]
    names = np.split(corpus.digests(np.concatenate(named_by)), np.cumsum([len(rows) for rows in joined])[:-1])
    for number, file in enumerate(files):
        yield _Join(
            pieces=layout.pieces(number),
            split=file.split,
            joined=joined[number],
            joined_cluster=names[number],
            cluster_size=sizes[file.positions],
            form=corpus.form,
            out=attempt.path(file.name),
        )


def join_pieces(task: _Join) -> int:
    """Write one output file; returns its rows."""
    write_document_file(task.out, task.form, task.pieces.has("turns"), _columns(task))
    return len(task.cluster_size)


def _columns(task: _Join) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of an output file, some at a time."""
    start = 0
    for table in task.pieces.tables():
        stop = start + len(table)
        cluster, some = raw_digests(table["cluster"]), slice(*np.searchsorted(task.joined, (start, stop)))
        cluster[task.joined[some] - start] = task.joined_cluster[some]
        yield (
            len(table),
            {name: table[name] for name in table.column_names if name != "cluster"}
            | {
                "split": pa.repeat(task.split, len(table)),
                "cluster_id": hex_digits(cluster),
                "cluster_size": task.cluster_size[start:stop],
            },
        )
        start = stop


def count_by_genre(corpus: Corpus, chosen: Ints) -> dict[str, dict[str, int]]:
    """Return documents and characters of the candidates `chosen`, by genre, in the order of tables."""
    totals = zip(corpus.candidates.genres, *corpus.candidates.totals(chosen), strict=True)
    found = {name: (number, size) for name, number, size in totals if number}
    return {
        "documents": {name: found[name][0] for name in sort_genres(found)},
        "characters": {name: found[name][1] for name in sort_genres(found)},
    }
