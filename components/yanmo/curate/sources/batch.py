"""A batch: what one process normalizes at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yanmo.curate.sources.listing import Source

MAX_RECORD_BYTES = 64 << 20
"""A longer line or block is skipped and counted as malformed."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some consecutive records of one file."""

    source: Source
    first: int
    """Line number (row number in Parquet) of the first record, from 1."""
    data: Any
    """Bytes of whole lines or blocks, or a record batch."""
    too_long: tuple[int, ...] = ()
    """Numbers of lines that were skipped because they are longer than `limit` bytes."""
    limit: int = MAX_RECORD_BYTES
    layout: str = ""
    """What a document is in a text file; one of LAYOUTS but auto."""
    encoding: str = "utf-8"
    """Encoding of the file; `data` is UTF-8."""
    numbers: tuple[int, ...] = ()
    """Line numbers of the lines in `data` where they are made from records that have more or fewer."""
    names: tuple[str, ...] = ()
    """All columns of its file, where a record shows only those that were read."""
    nothing: str = ""
    """Why there is no document in the file, of which this is the only batch."""
    bad: tuple[tuple[int, str], ...] = ()
    """Line numbers of what is no record, and why."""
