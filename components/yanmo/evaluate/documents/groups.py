"""Which documents belong together, so that an interval does not count them as independent.

Ten poems of one author say less about poems than ten of ten authors: what one model gains on the first, it
gains on the others too. Intervals therefore draw groups (common/bootstrap.py): all documents of one known
author in a genre; where the author is unknown, all of one work. Curate's `source` names a work where none of
its texts has an author (a book cut into chapters); a source with authors is a collection, whose anonymous
texts have nothing in common.

An author or work with more than a fifth of a genre is no group: another test split of this corpus would
hold it as well, so it is part of what the genre is here, and its texts are drawn one by one. So a corpus of
one author, or of one file without authors, keeps intervals over documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from yanmo.formats.records import UNKNOWN_AUTHORS

LARGEST_SHARE = 0.2
"""The largest share of a genre's documents that a group may have. So a genre has at least five groups."""


def groups_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The name of each document's group, by `genre`, `author` and `source`; empty if it has none."""
    known = [row["author"].lower() not in UNKNOWN_AUTHORS for row in rows]
    collections = {row["source"] for row, is_known in zip(rows, known, strict=True) if is_known}
    names = [
        f"author {row['author']}"
        if is_known
        else f"work {row['source']}" * (row["source"] not in collections)
        for row, is_known in zip(rows, known, strict=True)
    ]
    members = Counter((row["genre"], name) for row, name in zip(rows, names, strict=True))
    sizes = Counter(row["genre"] for row in rows)
    return [
        name if 1 < members[row["genre"], name] <= LARGEST_SHARE * sizes[row["genre"]] else ""
        for row, name in zip(rows, names, strict=True)
    ]
