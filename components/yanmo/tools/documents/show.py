"""`yanmo documents show`: what curate dropped and changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow.parquet as pq

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import DataError
from yanmo.formats.decisions import DECISIONS_FILE
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.documents.command import ShowOptions
from yanmo.tools.store.find import find, print_json


def run(store: ObjectStore, options: ShowOptions) -> int:
    output = find(store, options.what, "curate", channel=options.channel)
    rows = (
        row
        for row in decisions(output)
        if row["path"].startswith(options.path)
        and options.reason in ("", row["reason"])
        and options.change in ("", *row["changes"].split(","))
    )
    chosen = list(islice(rows, options.most))
    if options.json:
        print_json(chosen)
        return 0
    _print_counts(output)
    for row in chosen:
        print(shown(row))
    if options.most and not chosen:
        print("none is like that")
    return 0


def decisions(output: Output) -> Iterator[dict[str, Any]]:
    """The rows of its table, one after another.

    Raises:
        DataError: it has none.
    """
    if not output.entries(DECISIONS_FILE):
        raise DataError(f"{output}: has no {DECISIONS_FILE}; run curate again")
    for batch in pq.ParquetFile(output.path(DECISIONS_FILE)).iter_batches():
        yield from batch.to_pylist()


def shown(row: dict[str, Any]) -> str:
    """A row in words, on two lines."""
    value = "" if row["value"] is None else f" {row['value']:.4g}"
    facts = [row["reason"] + value or "kept"]
    if row["id"]:
        facts += [f"{row['genre']} {row['characters']:,} characters", f"id {row['id'][:12]}"]
    for name, column in (("changed by ", "changes"), ("copy of ", "other_path"), ("", "note")):
        facts += [name + row[column]] if row[column] else []
    lines = f"{row['path']}:{row['line']}", f"  {'; '.join(facts)}"
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def _print_counts(output: Output) -> None:
    reasons, changes, sizes = Counter[str](), Counter[str](), Counter[str]()
    for row in decisions(output):
        if row["reason"]:
            reasons[row["reason"]] += 1
            sizes[row["reason"]] += row["characters"]
        changes.update(filter(None, row["changes"].split(",")))
    rows = [("reason", "documents", "characters")]
    rows += [(name, f"{number:,}", f"{sizes[name]:,}") for name, number in reasons.most_common()]
    print("\n".join(text_table(rows)))
    changed = ", ".join(f"{name} {number:,}" for name, number in changes.most_common())
    print(f"\nchanged by {changed or 'nothing'}\n")
