"""The class of a document: the value of one of its labels, or a combination of several.

genre, author, source, license    columns of the documents
anything else                     an entry of the document's labels (dynasty); `-` where it has none
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

COLUMNS = ("genre", "author", "source", "license")
NONE = "-"


def columns_of(by: str) -> list[str]:
    """Return the columns of the documents that `by` needs."""
    return sorted({name if name in COLUMNS else "labels" for name in parts_of(by)})


def parts_of(by: str) -> list[str]:
    """Return the names that `by` crosses."""
    return [name.strip() for name in by.split("+")]


def values_by_part(table: pa.Table, by: str) -> dict[str, list[str]]:
    """Return the value of each row of a batch under each name of `by`; `-` for none.

    Args:
        table: documents with the columns that `columns_of(by)` names.
        by: names joined by `+`.
    """
    return {name: _values(table, name) for name in parts_of(by)}


def joined(values: Mapping[str, list[str]]) -> list[str]:
    """Return the class of each row, from its values under each name."""
    return ["/".join(row) for row in zip(*values.values(), strict=True)]


def _values(table: pa.Table, name: str) -> list[str]:
    if name in COLUMNS:
        return [value or NONE for value in table[name].to_pylist()]
    return [dict(row).get(name) or NONE for row in table["labels"].to_pylist()]
