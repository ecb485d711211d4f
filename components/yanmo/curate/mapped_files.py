"""The files of phase `map`: the documents of a batch, and beside them what is decided by.

That is all but their text, and the numbers that near duplicates are found by. So the process that decides
reads no text: the mapped files may lie on other machines. The keys of a band are one column, so that the plan
reads them band by band: 4 bytes per document at a time, whatever the corpus.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.curate.duplicates.shingles import BANDS, band_keys
from yanmo.formats.decisions import DECISIONS
from yanmo.formats.records import DOCUMENTS, TEXT_FORM, write_parquet

DIGEST_BYTES = 16

DOCUMENT_COLUMNS = ("id", "text", "genre", "labels", "title", "author", "source", "license")
"""Columns of documents v1 that `map` fills."""

CHAT_COLUMNS = ("loss_spans", "turns")
"""Further columns of a mapped file that holds a chat."""

MAPPED = pa.schema(
    [
        *map(DOCUMENTS.field, DOCUMENT_COLUMNS),
        pa.field("cluster", pa.binary(DIGEST_BYTES), nullable=False),
        pa.field("whole", pa.binary(DIGEST_BYTES), nullable=False),
        pa.field("characters", pa.int32(), nullable=False),
        pa.field("marks", pa.int32(), nullable=False),
        *(DECISIONS.field(n) for n in ("path", "line", "changes")),
    ],
    metadata={"yanmo.schema": "mapped", "yanmo.version": "1", "yanmo.text_form": TEXT_FORM},
)
"""cluster: digest of what is compared (mapped_texts.py), equal for exact copies. whole: digest of all fields,
to order copies with the same id. marks: number of punctuation marks."""

BAND_COLUMNS = tuple(f"band_{i:02d}" for i in range(BANDS))

_COPIED = tuple(name for name in MAPPED.names if name not in ("text", "labels", "title"))
"""Columns taken over from the mapped file."""

SIGNED = pa.schema(
    [
        *map(MAPPED.field, _COPIED),
        pa.field("units", pa.int32(), nullable=False),
        pa.field("lacunae", pa.int32(), nullable=False),
        *(pa.field(name, pa.uint32(), nullable=False) for name in BAND_COLUMNS),
    ],
    metadata={"yanmo.schema": "signed", "yanmo.version": "2"},
)
"""One row per row of the mapped file: its columns but text, labels and title; then units that are compared,
marks of lost characters, key of each band."""

TEXTS, TABLES = "mapped-*.parquet", "signed-*.parquet"
"""The mapped files, and the tables beside them, in the same order."""


class Documents(NamedTuple):
    """The documents of a batch, all in one order."""

    table: pa.Table
    """As MAPPED, with CHAT_COLUMNS where one of them is a chat."""
    compared: list[str]
    """What is compared of each."""
    lacunae: npt.NDArray[np.int64]
    """How many marks of lost characters each has."""


def write_mapped(folder: Path, number: int, documents: Documents) -> list[str]:
    """Write the mapped file of this number and the table beside it; returns their names."""
    names = [pattern.replace("*", f"{number:06d}") for pattern in (TEXTS, TABLES)]
    write_parquet(documents.table, folder / names[0], level=1)
    keys, sizes = band_keys(documents.compared)
    lacunae = documents.lacunae.astype(np.int32)
    columns = [*map(documents.table.column, _COPIED), sizes, lacunae, *keys]
    # Keys are noise: compressing them or looking for repeated ones would only cost time.
    pq.write_table(
        pa.table(columns, schema=SIGNED),
        folder / names[1],
        compression=dict.fromkeys(_COPIED, "zstd"),
        use_dictionary=["genre", "author", "source", "license", "path", "changes"],
        write_statistics=False,
    )
    return names
