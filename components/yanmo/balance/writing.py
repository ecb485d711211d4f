"""The chosen documents as files, in the order of their ids: two passes (row_pieces.py), each a map."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.balance.augmentation.augment import COLUMNS, REPEAT, Augmentation, augmenter, copy_digest
from yanmo.common.logs import Progress
from yanmo.engine.maps import add_made, ordered_map, remove_folder
from yanmo.engine.row_pieces import Layout, Pieces, cut_file
from yanmo.engine.sql import Tables
from yanmo.formats.documents import write_document_file
from yanmo.formats.records import ROW_GROUP
from yanmo.store.commit import Attempt

log = logging.getLogger(__name__)
LESS = "fewer --workers or a smaller --shard-characters"

_PLACED = """
create or replace table placed as
with ordered as (
    select position, copy, row_number() over by_id as place,
        (sum(characters) over by_id - characters) // $shard_characters as shard
    from picked window by_id as (order by id, class, copy, position rows unbounded preceding)
), parts as (
    select shard, (row_number() over (order by shard) - 1)::integer as part
    from (select distinct shard from ordered)
)
select part, file, row, place, copy
from ordered join parts using (shard) join rows using (position) order by part, place
"""
"""The documents of the output in the order of their ids, about so many characters in each part."""


@dataclass(frozen=True)
class Made:
    """Copies that are in the output."""

    rules: Counter[str]
    """Rule -> number of copies that it made."""
    shared: int
    """Copies that stayed plain repeats as they would have shared a run with held-out text."""


@dataclass(frozen=True, kw_only=True)
class _Join:
    """One output file to join from its pieces."""

    pieces: Pieces
    copies: npt.NDArray[np.int32]
    """Of each row the number of its copy; 0 is the document."""
    augmentation: Augmentation | None
    form: str
    out: Path


def write_train(
    attempt: Attempt,
    files: Sequence[Path],
    tables: Tables,
    *,
    augmentation: Augmentation | None,
    form: str,
    shard_characters: int,
    workers: int,
) -> Made:
    """Write the documents of the table `picked` as `train-00000-of-0000N.parquet`.

    Args:
        files: of the train split, for tasks; `rows.file` is an index into them.
    """
    tables.run(_PLACED, shard_characters=shard_characters)
    layout = Layout(paths=files, tables=tables, scratch=attempt.path("scratch/pieces").parent)
    with ordered_map(cut_file, layout.cuts(), workers) as results:
        for _ in results:
            pass
    names = [f"train-{n:05d}-of-{len(layout.sizes):05d}.parquet" for n in range(len(layout.sizes))]

    def joins() -> Iterator[_Join]:
        for part, name in enumerate(names):
            rows = tables.table("select copy from placed where part = $part order by place", part=part)
            yield _Join(
                pieces=layout.pieces(part),
                copies=rows["copy"].to_numpy(),
                augmentation=augmentation,
                form=form,
                out=attempt.path(name),
            )

    made = Made(Counter(), 0)
    progress = Progress(log, "wrote train", sum(layout.sizes), unit="documents")
    with ordered_map(join_pieces, joins(), workers, LESS) as joined:
        for name, rows, some in zip(names, layout.sizes, joined, strict=True):
            add_made(attempt, [name])
            made = Made(made.rules + some.rules, made.shared + some.shared)
            progress.add(rows)
    remove_folder(layout.scratch)
    return made


def join_pieces(task: _Join) -> Made:
    """Write one output file; return the copies in it."""
    rules: Counter[str] = Counter()
    shared = 0

    def columns() -> Iterator[tuple[int, dict[str, Any]]]:
        nonlocal shared
        start = 0
        for table in task.pieces.tables(ROW_GROUP):
            values: dict[str, Any] = {name: table[name] for name in table.column_names}
            copied, of_these = _copied(task.augmentation, table, task.copies[start : start + len(table)])
            values |= copied
            shared += of_these
            rules.update(rule for rule in values["rule"].to_pylist() if rule)
            yield len(table), values
            start += len(table)

    write_document_file(task.out, task.form, task.pieces.has("turns"), columns())
    return Made(rules, shared)


def _copied(
    augmentation: Augmentation | None, table: pa.Table, copies: npt.NDArray[np.int32]
) -> tuple[dict[str, pa.Array], int]:
    """Return the columns id, parent_id, rule and text, in which copies differ from their originals, and how
    many copies stayed plain repeats as they would have shared a run."""
    at = np.flatnonzero(copies)
    names = ("id", "parent_id", "rule", "text") if augmentation else ("id", "parent_id", "rule")
    if not len(at):
        return {name: table[name] for name in names}, 0
    columns = {name: table[name].to_pylist() for name in names}
    chosen = table.select(COLUMNS).take(pa.array(at))
    parents = chosen["id"].to_pylist()
    augmented = augmenter(augmentation).of_table(chosen, copies[at].tolist()) if augmentation else None
    for i, place in enumerate(at.tolist()):
        made = augmented[i] if augmented else None
        columns["id"][place] = copy_digest(parents[i], int(copies[place]), made).hex()
        columns["parent_id"][place] = parents[i]
        columns["rule"][place] = made.rule if made else REPEAT
        if made:
            columns["text"][place] = made.text
    shared = sum(made.shared for made in augmented or ())
    return {name: pa.array(values, pa.string()) for name, values in columns.items()}, shared
