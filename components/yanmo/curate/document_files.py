"""Phase `write`: the planned documents as documents v1, in the order of their ids.

Two passes, each in several processes: every mapped file is cut into one piece per output file, then each
output file is joined from its pieces. So every byte is read twice, however many output files there are, and
memory holds one mapped file or one output file per process.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.common.logs import Progress
from yanmo.common.ordered_map import ordered_map
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapping import CHAT_COLUMNS, DOCUMENT_COLUMNS
from yanmo.curate.plan import Digests, hex_digits
from yanmo.curate.tally import sort_genres
from yanmo.formats.documents import shard_bounds
from yanmo.formats.records import DOCUMENTS_WITH_TURNS, as_documents, write_parquet
from yanmo.store.commit import Attempt

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """One mapped file to cut: its rows, by output file."""

    mapped: Path
    rows: list[npt.NDArray[np.int32]]
    """For each output file the rows that go there, in the order of ids."""
    out: Path


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

    pieces: list[Path]
    number: int
    """Number of the file's record batch in each piece."""
    order: npt.NDArray[np.int64]
    """For each row of the output, its row in the concatenated pieces."""
    split: str
    cluster: Digests
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
    suffix: str = "",
) -> dict[str, dict[str, dict[str, int]]]:
    """Write the corpus' documents as `<split><suffix>-00000-of-0000N.parquet`.

    Args:
        splits: split -> positions of its documents.
        meanwhile: called in this process while workers join the files.

    Returns:
        {"documents": split -> genre -> number, "characters": split -> genre -> number}
    """
    files = [
        file for name, held in splits.items() for file in _files(corpus, name, held, shard_characters, suffix)
    ]
    scratch = attempt.path("scratch/pieces").parent
    cuts = list(_cuts(corpus, files, scratch))
    with ordered_map(cut_file, iter(cuts), workers) as results:
        for _ in results:
            pass
    joins = _joins(attempt, corpus, files, cuts)
    progress = Progress(
        log, f"wrote {' and '.join(splits)}", sum(len(f.positions) for f in files), unit="documents"
    )
    with ordered_map(
        join_pieces, joins, workers, "fewer --workers or a smaller --shard-characters"
    ) as results:
        meanwhile()
        for file, rows in zip(files, results, strict=True):
            attempt.add(file.name)
            progress.add(rows)
    shutil.rmtree(scratch)
    counts = {name: count_by_genre(corpus, corpus.copies.unique[held]) for name, held in splits.items()}
    return {what: {name: counts[name][what] for name in splits} for what in ("documents", "characters")}


def _files(corpus: Corpus, split: str, positions: Ints, shard_characters: int, suffix: str) -> list[_File]:
    chosen = corpus.copies.unique[positions]
    order = np.argsort(corpus.candidates.id[chosen], kind="stable")
    bounds = shard_bounds(corpus.candidates.characters[chosen[order]].astype(np.int64), shard_characters)
    return [
        _File(
            name=f"{split}{suffix}-{i:05d}-of-{len(bounds):05d}.parquet",
            split=split,
            positions=positions[order[start:stop]],
        )
        for i, (start, stop) in enumerate(bounds)
    ]


def _cuts(corpus: Corpus, files: Sequence[_File], scratch: Path) -> Iterator[_Cut]:
    chosen = corpus.copies.unique[np.concatenate([f.positions for f in files])]
    file, row = corpus.candidates.file[chosen], corpus.candidates.row[chosen]
    starts = np.cumsum([len(f.positions) for f in files])[:-1]
    by_file = np.argsort(file, kind="stable")
    for group in np.split(by_file, np.flatnonzero(np.diff(file[by_file])) + 1):
        rows = [row[part] for part in np.split(group, np.searchsorted(group, starts))]
        number = int(file[group[0]])
        yield _Cut(mapped=corpus.paths[number], rows=rows, out=scratch / f"{number:06d}.arrow")


def cut_file(task: _Cut) -> None:
    """Write one record batch per output file."""
    have = pq.read_schema(task.mapped).names
    names = [name for name in (*DOCUMENT_COLUMNS, *CHAT_COLUMNS) if name in have]
    table = pq.read_table(task.mapped, columns=names, partitioning=None).combine_chunks()
    schema = table.schema.remove_metadata()
    with pa.OSFile(str(task.out), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for rows in task.rows:
            piece = table.take(pa.array(rows)).combine_chunks().replace_schema_metadata(None)
            batches = piece.to_batches()
            writer.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], schema))


def _joins(attempt: Attempt, corpus: Corpus, files: Sequence[_File], cuts: Sequence[_Cut]) -> Iterator[_Join]:
    sizes = corpus.cluster_sizes
    for number, file in enumerate(files):
        mapped = corpus.candidates.file[corpus.copies.unique[file.positions]]
        order = np.empty(len(mapped), dtype=np.int64)
        order[np.argsort(mapped, kind="stable")] = np.arange(len(mapped))
        yield _Join(
            pieces=[cut.out for cut in cuts if len(cut.rows[number])],
            number=number,
            order=order,
            split=file.split,
            cluster=corpus.cluster_digests(file.positions),
            cluster_size=sizes[file.positions],
            form=corpus.form,
            out=attempt.path(file.name),
        )


def join_pieces(task: _Join) -> int:
    """Write one output file; returns its rows."""
    batches = []
    for path in task.pieces:
        with pa.memory_map(str(path)) as file:
            batches.append(pa.ipc.open_file(file).get_batch(task.number))
    columns: dict[str, Any] = {
        "split": pa.repeat(task.split, len(task.order)),
        "cluster_id": hex_digits(task.cluster),
        "cluster_size": task.cluster_size,
    }
    if batches:
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        table = pa.concat_tables(tables, promote_options="default").combine_chunks()
        table = table.take(pa.array(task.order))
        columns |= {name: table[name] for name in table.column_names}
    count = len(task.order)
    arrays = [
        _one_array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in DOCUMENTS_WITH_TURNS
    ]
    table = pa.table(arrays, schema=DOCUMENTS_WITH_TURNS)
    write_parquet(as_documents(table, task.form), task.out)
    return count


def _one_array(values: Any, kind: pa.DataType) -> pa.Array:
    """The values as one chunk, so that the file does not depend on how the table was made."""
    if not isinstance(values, pa.ChunkedArray):
        return pa.array(values, kind)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, kind)


def count_by_genre(corpus: Corpus, chosen: Ints) -> dict[str, dict[str, int]]:
    """Documents and characters of the candidates `chosen`, by genre, in the order of tables."""
    candidates = corpus.candidates
    genre, genres = candidates.genre[chosen], candidates.genres
    documents = np.bincount(genre, minlength=len(genres)).tolist()
    sums = np.bincount(genre, weights=candidates.characters[chosen], minlength=len(genres)).tolist()
    found = {name: (documents[i], int(sums[i])) for i, name in enumerate(genres) if documents[i]}
    return {
        "documents": {name: found[name][0] for name in sort_genres(found)},
        "characters": {name: found[name][1] for name in sort_genres(found)},
    }


def write_duplicates(attempt: Attempt, corpus: Corpus) -> None:
    """Write `duplicates.parquet`: every copy that was dropped, and the document that was kept for it."""
    best = corpus.copies.unique
    position = corpus.copies.position
    stays = best[corpus.kept_for[position]]
    dropped = np.flatnonzero(stays != np.arange(len(stays)))
    both = corpus.rows(np.concatenate((dropped, stays[dropped])), ("id", "source"))
    table = pa.table(
        {
            "kept_id": both["id"].slice(len(dropped)).combine_chunks(),
            "id": both["id"].slice(0, len(dropped)).combine_chunks(),
            "source": both["source"].slice(0, len(dropped)).combine_chunks(),
            "is_exact": pa.array(best[position[dropped]] != dropped),
        }
    )
    order = pc.sort_indices(table, sort_keys=[("kept_id", "ascending"), ("id", "ascending")])
    write_parquet(table.take(order), attempt.path("duplicates.parquet"))
    attempt.add("duplicates.parquet", role="record")


def count_licenses(corpus: Corpus, positions: Ints) -> dict[str, int]:
    """Documents under each licence."""
    column = corpus.rows(corpus.copies.unique[positions], ("license",))["license"]
    found = {entry["values"]: entry["counts"] for entry in pc.value_counts(column).to_pylist()}
    return dict(sorted(found.items()))
