"""Between `map` and `plan`: what is decided by of each document, next to the mapped files.

That is all but its text, and the numbers that near duplicates are found by. So the process that decides reads
no text: the mapped files may lie on other machines. The keys of a band are one column, so that the plan reads
them band by band: 4 bytes per document at a time, whatever the corpus. They are an output of their own per
mapped file, so that only new text is signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.curate.duplicates.shingles import BANDS, band_keys
from yanmo.curate.mapped_texts import form_of_file, in_first_form
from yanmo.curate.mapping import MAPPED
from yanmo.curate.text.normalize import LOST
from yanmo.engine.maps import add_made, ordered_map, paths_for_tasks
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output

REVISION = 4
"""Raised when the same text gets other keys, or the files have other columns."""

BAND_COLUMNS = tuple(f"band_{i:02d}" for i in range(BANDS))

_COPIED = tuple(name for name in MAPPED.names if name not in ("text", "labels", "title"))
"""Columns taken over from the mapped file."""

SIGNED = pa.schema(
    [
        *(MAPPED.field(name) for name in _COPIED),
        pa.field("units", pa.int32(), nullable=False),
        pa.field("lacunae", pa.int32(), nullable=False),
        *(pa.field(name, pa.uint32(), nullable=False) for name in BAND_COLUMNS),
    ],
    metadata={"yanmo.schema": "signed", "yanmo.version": "2"},
)
"""One row per row of the mapped file: its columns but text, labels and title; then units that are compared,
marks of lost characters, key of each band."""


@dataclass(frozen=True, kw_only=True)
class _Task:
    mapped: Path
    signed: Path


def build_signed(attempt: Attempt, *, mapped: Output, workers: int) -> Result:
    """Write `signed-000000.parquet` ... for the files of `mapped`."""
    rows, names = 0, iter(signed_names(mapped))
    tasks = _tasks(attempt, mapped)
    with ordered_map(sign_file, tasks, workers) as results:
        for written in results:
            add_made(attempt, [next(names)])
            rows += written
    return Result(counts={"documents": rows})


def signed_names(mapped: Output) -> list[str]:
    """Names of the signed files, in the order of the mapped ones."""
    return [entry.path.replace("mapped-", "signed-") for entry in mapped.entries("mapped-*.parquet")]


def _tasks(attempt: Attempt, mapped: Output) -> Iterator[_Task]:
    for entry, name in zip(mapped.entries("mapped-*.parquet"), signed_names(mapped), strict=True):
        # One by one: the next file is fetched and verified while this one is being signed.
        yield _Task(mapped=paths_for_tasks(mapped, entry.path)[0], signed=attempt.path(name))


def sign_file(task: _Task) -> int:
    """Write the signed file of one mapped file; returns its rows."""
    mapped = pq.read_table(task.mapped, columns=["text", *_COPIED], partitioning=None)
    texts = mapped["text"].to_pylist()
    form = form_of_file(task.mapped)
    keys, sizes = band_keys(in_first_form(texts, form), form)
    lacunae = np.array([sum(map(text.count, LOST)) for text in texts], dtype=np.int32)
    table = pa.table([*map(mapped.column, _COPIED), sizes, lacunae, *keys], schema=SIGNED)
    # Keys are noise: compressing them or looking for repeated ones would only cost time.
    pq.write_table(
        table,
        task.signed,
        compression=dict.fromkeys(_COPIED, "zstd"),
        use_dictionary=["genre", "author", "source", "license", "path", "changes"],
        write_statistics=False,
    )
    return len(texts)
