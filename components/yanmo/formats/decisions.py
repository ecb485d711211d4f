"""decisions.parquet: a row for each document that curate dropped or changed, and for each malformed line."""

from __future__ import annotations

import pyarrow as pa

DECISIONS_FILE = "decisions.parquet"
MALFORMED = "malformed"
COPIES = ("duplicate", "near_duplicate")
"""Reasons of what another document was kept for."""

DECISIONS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("line", pa.int32(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("genre", pa.string(), nullable=False),
        pa.field("characters", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("changes", pa.string(), nullable=False),
        pa.field("note", pa.string(), nullable=False),
        pa.field("other_id", pa.string(), nullable=False),
        pa.field("other_path", pa.string(), nullable=False),
    ],
    metadata={"yanmo.schema": "decisions", "yanmo.version": "1"},
)
"""path: below its place of --sources; line: where it begins there. reason: "" where it is kept. value: what
the filter measured, or the share in shared runs. changes: steps that changed the text, with commas. note: the
shared run, why a line is malformed, or the script of a text with few Han characters. other_id, other_path: of
a copy, the document that was kept for it, and its path:line."""


def decided(rows: list[dict[str, object]]) -> pa.Table:
    """Rows of DECISIONS; a text that is not given is empty."""
    empty = {f.name: 0 if f.type == pa.int32() else "" for f in DECISIONS if not f.nullable}
    return pa.Table.from_pylist([{**empty, **row} for row in rows], schema=DECISIONS)
