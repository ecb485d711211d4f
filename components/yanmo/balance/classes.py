"""The class of a document: the value of one of its labels, or a combination of several.

genre, author, source, license    columns of the documents
length                            `0-63`, `64-255` ... characters
form                              of verse, by its clauses: `5x8` (eight of five characters), `7x4`, `5xn`,
                                  `free` where clauses differ in length
anything else                     an entry of the document's labels (dynasty); `-` where it has none
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pyarrow as pa

COLUMNS = ("genre", "author", "source", "license")
COMPUTED = ("length", "form")
NONE = "-"
_CLAUSE_ENDS = re.compile(r"[，。！？；、：\n]+")
_WHOLE_FORMS = {4, 8}


def columns_of(by: str) -> list[str]:
    """Columns of the documents that `by` needs."""
    names = [
        ("text" if p == "form" else p if p in COLUMNS else "labels") for p in parts_of(by) if p != "length"
    ]
    return sorted(set(names))


def parts_of(by: str) -> list[str]:
    """The names that `by` crosses."""
    return [name.strip() for name in by.split("+")]


def values_by_part(
    table: pa.Table, characters: Sequence[int], by: str, bounds: Sequence[int]
) -> dict[str, list[str]]:
    """The value of each row of a batch under each name of `by`; `-` for none.

    Args:
        table: documents with the columns that `columns_of(by)` names.
        characters: characters of each document.
        by: names joined by `+`.
        bounds: lengths at which the next class of `length` begins.
    """
    return {name: _values(table, characters, name, bounds) for name in parts_of(by)}


def joined(values: Mapping[str, list[str]]) -> list[str]:
    """The class of each row, from its values under each name."""
    return ["/".join(row) for row in zip(*values.values(), strict=True)]


def _values(table: pa.Table, characters: Sequence[int], name: str, bounds: Sequence[int]) -> list[str]:
    if name in COLUMNS:
        return [value or NONE for value in table[name].to_pylist()]
    if name == "length":
        names = length_names(bounds)
        return [names[bisect_right(bounds, n)] for n in characters]
    if name == "form":
        return [form_of(text) for text in table["text"].to_pylist()]
    return [dict(row).get(name) or NONE for row in table["labels"].to_pylist()]


def length_names(bounds: Sequence[int]) -> list[str]:
    """Names of the classes of `length`, such as `0-63`, `64-255`, `256-`."""
    starts = [0, *bounds]
    return [f"{a}-{b - 1}" for a, b in pairwise(starts)] + [f"{starts[-1]}-"]


def form_of(text: str) -> str:
    """The form of verse: clause length x number of clauses (4, 8 or n); `free` for unequal clauses."""
    lengths = {len(clause) for clause in _CLAUSE_ENDS.split(text) if clause}
    if len(lengths) != 1 or min(lengths) > 9:
        return "free"
    count = sum(1 for clause in _CLAUSE_ENDS.split(text) if clause)
    return f"{lengths.pop()}x{count if count in _WHOLE_FORMS else 'n'}"
