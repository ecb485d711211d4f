"""Phase `write`: the planned documents as documents v1, in the order of their ids.

Two passes (row_pieces.py), each in several processes: every mapped file is cut into one piece per output
file, then each output file is joined from its pieces, a row group at a time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from yanmo.common.logs import Progress
from yanmo.curate.corpus import Corpus
from yanmo.curate.map_report import sort_genres
from yanmo.curate.mapping import CHAT_COLUMNS, DOCUMENT_COLUMNS
from yanmo.engine.maps import add_made, ordered_map, remove_folder
from yanmo.engine.row_pieces import Layout, Pieces, cut_file
from yanmo.formats.documents import write_document_file
from yanmo.formats.records import ROW_GROUP
from yanmo.store.commit import Attempt

log = logging.getLogger(__name__)

_CUT = """
create or replace table cut as
select split, file, row, home, cluster, copies, position, row_number() over by_id as place,
    (sum(characters) over by_id - characters) // $shard_characters as shard
from ({chosen}) join texts using (position)
window by_id as (partition by split order by id, position rows unbounded preceding)
"""
"""Documents in the order of their ids, about so many characters in each shard."""

_PLACED = """
create or replace table placed as
with parts as (
    select split, shard, (row_number() over (order by split, shard) - 1)::integer as part
    from (select distinct split, shard from cut)
), named as (
    select position as home, cluster from texts
    where position in (select home from cut where home <> position)
), others as (
    select kept_for as position, sum(copies) as copies from texts where kept_for <> position group by kept_for
)
select part, split, file, row, place,
    replace(coalesce(named.cluster, cut.cluster)::varchar, '-', '') as cluster_id,
    (cut.copies + coalesce(others.copies, 0))::integer as cluster_size
from cut join parts using (split, shard)
left join named on cut.home = named.home left join others on cut.position = others.position
order by part, place
"""
"""A cluster is named by its first text's digest; its size is that of what this text is kept for."""


@dataclass(frozen=True, kw_only=True)
class _Join:
    """One output file to join from its pieces."""

    pieces: Pieces
    split: str
    cluster_id: pa.ChunkedArray
    cluster_size: pa.ChunkedArray
    form: str
    out: Path


def write_splits(
    attempt: Attempt,
    corpus: Corpus,
    splits: Mapping[str, str],
    shard_characters: int,
    workers: int,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, dict[str, int]]]:
    """Write the corpus' documents as `<split>-00000-of-0000N.parquet`.

    Args:
        splits: split -> relation of its texts, as in `Corpus`; none is empty.
        meanwhile: called in this process while workers join the files.

    Returns:
        {"documents": split -> genre -> number, "characters": split -> genre -> number}
    """
    chosen = " union all ".join(
        f"select {number} as split, position from {held}" for number, held in enumerate(splits.values())
    )
    corpus.tables.run(_CUT.format(chosen=chosen), shard_characters=shard_characters)
    corpus.tables.run(_PLACED)
    corpus.tables.run("drop table cut")
    layout = Layout(
        paths=corpus.paths,
        tables=corpus.tables,
        scratch=attempt.path("scratch/pieces").parent,
        columns=(*DOCUMENT_COLUMNS, *CHAT_COLUMNS),
    )
    with ordered_map(cut_file, layout.cuts(), workers) as results:
        for _ in results:
            pass
    files = _files(corpus, list(splits))
    progress = Progress(log, f"wrote {' and '.join(splits)}", sum(layout.sizes), unit="documents")
    with ordered_map(
        join_pieces,
        _joins(attempt, corpus, files, layout),
        workers,
        "fewer --workers or a smaller --shard-characters",
    ) as results:
        meanwhile()
        for (name, _), rows in zip(files, results, strict=True):
            add_made(attempt, [name])
            progress.add(rows)
    remove_folder(layout.scratch)
    counts = {name: count_by_genre(corpus, held) for name, held in splits.items()}
    return {what: {name: counts[name][what] for name in splits} for what in ("documents", "characters")}


def _files(corpus: Corpus, splits: Sequence[str]) -> list[tuple[str, str]]:
    """Return the name and the split of each part's file."""
    parts = [
        splits[split]
        for _, split in corpus.tables.rows("select distinct part, split from placed order by part")
    ]
    count, first = Counter(parts), {split: parts.index(split) for split in set(parts)}
    return [
        (f"{split}-{number - first[split]:05d}-of-{count[split]:05d}.parquet", split)
        for number, split in enumerate(parts)
    ]


def _joins(
    attempt: Attempt, corpus: Corpus, files: Sequence[tuple[str, str]], layout: Layout
) -> Iterator[_Join]:
    for number, (name, split) in enumerate(files):
        rows = corpus.tables.table(
            "select cluster_id, cluster_size from placed where part = $part order by place", part=number
        )
        yield _Join(
            pieces=layout.pieces(number),
            split=split,
            cluster_id=rows["cluster_id"],
            cluster_size=rows["cluster_size"],
            form=corpus.form,
            out=attempt.path(name),
        )


def join_pieces(task: _Join) -> int:
    """Write one output file; returns its rows."""
    write_document_file(task.out, task.form, task.pieces.has("turns"), _columns(task))
    return len(task.cluster_size)


def _columns(task: _Join) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of an output file, some at a time."""
    start = 0
    for table in task.pieces.tables(ROW_GROUP):
        yield (
            len(table),
            {name: table[name] for name in table.column_names}
            | {
                "split": pa.repeat(task.split, len(table)),
                "cluster_id": task.cluster_id.slice(start, len(table)),
                "cluster_size": task.cluster_size.slice(start, len(table)),
            },
        )
        start += len(table)


def count_by_genre(corpus: Corpus, chosen: str) -> dict[str, dict[str, int]]:
    """Return documents and characters of some texts, by genre, in the order of tables."""
    found = {name: (number, size) for name, number, size in corpus.totals(chosen)}
    return {
        "documents": {name: found[name][0] for name in sort_genres(found)},
        "characters": {name: found[name][1] for name in sort_genres(found)},
    }
