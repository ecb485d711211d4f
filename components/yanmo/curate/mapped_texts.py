"""What of a mapped text is compared with others: copies, and text shared with what is held out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.chinese.text_runs import compared
from yanmo.curate.text.normalize import normalize
from yanmo.formats.records import TEXT_FORM


def read_texts(path: Path, rows: npt.NDArray[np.int32] | None = None) -> list[str]:
    """What is compared of the texts of a mapped file, or of some of its rows."""
    column = pq.read_table(path, columns=["text"], partitioning=None)["text"]
    chosen = column if rows is None else column.take(pa.array(rows))
    return comparable(chosen.to_pylist(), form_of_file(path))


def form_of_file(path: Path) -> str:
    """The text form of a mapped file."""
    metadata: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    return metadata.get(b"yanmo.text_form", TEXT_FORM.encode()).decode()


def comparable(texts: Sequence[str], form: str) -> list[str]:
    """Of classical texts the Han characters of classical-1, of modern ones the text as it reads.

    Technical pages differ in names, numbers and code: `tiup dm` and `tiup cluster`, GB18030 and GBK.
    """
    is_other = form.startswith("classical") and form != TEXT_FORM
    return compared(normalize(texts).texts if is_other else texts, form)
