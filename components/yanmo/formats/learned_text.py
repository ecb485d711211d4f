"""Which texts a token cache or a model learned: by their ids, in tables.

Cost: the indexes of the cache (about 100 bytes per text), curate's table of decisions and, where texts were
varied, balance's files.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from yanmo.common.errors import DataError, in_words
from yanmo.store.output import Output

log = logging.getLogger(__name__)
_ID_COLUMNS = ("id", "parent_id")


def learned_by(output: Output, document: str) -> bool:
    """Return whether a token cache, or a model or one that it started from, holds a text or a copy of it.

    Raises:
        DataError: a table that has to be read is damaged.
    """
    return any(_holds(cache, document) for _, cache in caches_behind(output))


def caches_behind(output: Output) -> Iterator[tuple[Output | None, Output]]:
    """Yield the token caches behind an output, and the model that learned each; its own first."""
    if output.manifest.stage != "train":
        yield None, output
        return
    waiting, seen = [output], set()
    while waiting:
        model = waiting.pop(0)
        if model.content_digest in seen:
            continue
        seen.add(model.content_digest)
        for name in ("token_cache", "model"):
            try:
                one = model.input(name)
            except DataError as error:
                log.warning("%s: what it learned from cannot be looked at: %s", model, error)
                continue
            if one is not None and name == "token_cache":
                yield model, one
            elif one is not None:
                waiting.append(one)


def documents_behind(cache: Output) -> Iterator[Output]:
    """Return the outputs that a cache was made from, back to curated documents, if they are there."""
    one: Output | None = cache
    while one is not None:
        try:
            one = one.input("documents")
        except DataError as error:
            log.warning("%s: what it was made from is gone: %s", one, error)
            return
        if one is not None:
            yield one


def _holds(cache: Output, document: str) -> bool:
    made_from = list(documents_behind(cache))
    names = sorted({document, *_kept_for(made_from, {document})})
    augmented = (o for o in made_from if o.manifest.stage == "balance" and o.manifest.options.get("augment"))
    return any(rows_of(output, names, "train") for output in (cache, *augmented))


def _kept_for(outputs: Sequence[Output], ids: Set[str]) -> dict[str, str]:
    """Text that was kept as the best copy -> the copy of it, in `ids`, that was dropped."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from yanmo.formats.decisions import DECISIONS_FILE

    found: dict[str, str] = {}
    for path in (p for o in outputs if o.entries(DECISIONS_FILE) for p in o.paths(DECISIONS_FILE)):
        is_hit = pc.field("id").isin(sorted(ids))
        table = pq.read_table(path, columns=["id", "other_id"], filters=is_hit, partitioning=None)
        found |= {row["other_id"]: row["id"] for row in table.to_pylist() if row["other_id"]}
    return found


def rows_of(output: Output, ids: Sequence[str], split: str = "") -> dict[str, int]:
    """Return how many rows of an output's tables are about each of `ids`, of all splits or of one."""
    found: dict[str, int] = defaultdict(int)
    for entry in output.entries("*.parquet"):
        name = entry.path.rpartition("/")[2]
        if not name.startswith("tokens-") and not (split and name.startswith(("valid", "test", "confirm"))):
            for one, rows in rows_with(output.path(entry.path), ids, split).items():
                found[one] += rows
    return dict(found)


def rows_with(path: Path, ids: Sequence[str], split: str = "") -> dict[str, int]:
    """Return how many rows of a Parquet file are about each of `ids`, by its columns `id` and `parent_id`.

    Args:
        split: only rows of this split, where the file has such a column.

    Raises:
        DataError: it is not readable.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from yanmo.formats.decisions import COPIES

    found: dict[str, int] = defaultdict(int)
    try:
        names = pq.read_schema(path).names
        for column in (name for name in _ID_COLUMNS if name in names):
            wanted = pc.field(column).isin(sorted(ids))
            if split and "split" in names:
                wanted &= pc.field("split") == split
            if "reason" in names:  # others are not held
                wanted &= pc.field("reason").isin(COPIES)
            table = pq.read_table(path, columns=[column], filters=wanted, partitioning=None)
            for row in pc.value_counts(table[column].combine_chunks()).to_pylist():
                found[row["values"]] += row["counts"]
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file: {in_words(error)}; restore it") from error
    return dict(found)
