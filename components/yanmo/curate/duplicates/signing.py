"""What is decided by of each document, in a table beside each mapped file, which `map` writes too.

That is all but its text, and the numbers that near duplicates are found by. So the process that decides reads
no text: the mapped files may lie on other machines. The keys of a band are one column, so that the plan reads
them band by band: 4 bytes per document at a time, whatever the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.curate.duplicates.shingles import BANDS, band_keys
from yanmo.formats.decisions import DECISIONS
from yanmo.formats.records import DOCUMENTS

DIGEST_BYTES = 16
SHARED = pa.schema(
    [
        *map(DOCUMENTS.field, ("id", "genre", "author", "source", "license")),
        pa.field("cluster", pa.binary(DIGEST_BYTES), nullable=False),
        pa.field("whole", pa.binary(DIGEST_BYTES), nullable=False),
        pa.field("characters", pa.int32(), nullable=False),
        pa.field("marks", pa.int32(), nullable=False),
        *map(DECISIONS.field, ("path", "line", "changes")),
    ]
)
"""Columns of both. cluster: digest of what is compared (mapped_texts.py), equal for exact copies. whole:
digest of all fields, to order copies with the same id. marks: number of punctuation marks."""

BAND_COLUMNS = tuple(f"band_{i:02d}" for i in range(BANDS))
SIGNED = pa.schema(
    [
        *SHARED,
        pa.field("units", pa.int32(), nullable=False),
        pa.field("lacunae", pa.int32(), nullable=False),
        *(pa.field(name, pa.uint32(), nullable=False) for name in BAND_COLUMNS),
    ],
    metadata={"yanmo.schema": "signed", "yanmo.version": "2"},
)
"""One row per row of the mapped file: units that are compared, marks of lost characters, key of each band."""

NAMES = "signed-*.parquet"


def write_signed(
    documents: pa.Table, compared: Sequence[str], lacunae: npt.NDArray[np.int64], path: Path
) -> None:
    """Write the table of a mapped file's documents.

    Args:
        documents: their rows, with the columns of SHARED.
        compared: what is compared of each.
        lacunae: how many marks of lost characters each has.
    """
    keys, sizes = band_keys(compared)
    columns = [*map(documents.column, SHARED.names), sizes, lacunae.astype(np.int32), *keys]
    # Keys are noise: compressing them or looking for repeated ones would only cost time.
    pq.write_table(
        pa.table(columns, schema=SIGNED),
        path,
        compression=dict.fromkeys(SHARED.names, "zstd"),
        use_dictionary=["genre", "author", "source", "license", "path", "changes"],
        write_statistics=False,
    )
