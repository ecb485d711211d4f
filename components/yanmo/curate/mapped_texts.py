"""Texts of mapped files in the form used for comparison: simplified, with variants folded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.curate.text.normalize import normalize
from yanmo.formats.records import TEXT_FORM


def read_texts(path: Path, rows: npt.NDArray[np.int32] | None = None) -> list[str]:
    """The texts of a mapped file, or of some of its rows, in the form used for comparison."""
    column = pq.read_table(path, columns=["text"], partitioning=None)["text"]
    chosen = column if rows is None else column.take(pa.array(rows))
    return comparable(chosen.to_pylist(), form_of_file(path))


def form_of_file(path: Path) -> str:
    """The text form of a mapped file."""
    metadata: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    return metadata.get(b"yanmo.text_form", TEXT_FORM.encode()).decode()


def comparable(texts: Sequence[str], form: str) -> list[str]:
    """Texts of any form with the Han characters of classical-1; only those are compared."""
    return list(texts) if form == TEXT_FORM else normalize(texts).texts
