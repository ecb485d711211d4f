"""Whether a token cache or a model holds text that its channel forbids: for its licence, or as taken down.

Licences are counted by `curate` into the manifest of its documents; a text that was taken down is looked for
by its id in the tables of the cache and of what the cache was made from. Where `curate` was given the whole
takedown list already, its key says so and nothing is read.

Cost without lists: two small objects read. With a takedown list that is newer than the cache: the indexes of
the cache (about 100 bytes per text), curate's table of copies and, where texts were varied, balance's files.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from yanmo.common.errors import DataError, in_words
from yanmo.common.logs import plural
from yanmo.store.channel.licenses import UNKNOWN, Allowed, read_allowed
from yanmo.store.channel.takedown import read_takedown
from yanmo.store.manifest import digest
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output

if TYPE_CHECKING:
    import pyarrow.parquet as pq

log = logging.getLogger(__name__)
_ID_COLUMNS = ("id", "parent_id")
_SHOWN = 3


@dataclass(frozen=True)
class Policy:
    """What a channel forbids."""

    channel: str
    allowed: Allowed | None
    taken_down: frozenset[str]

    @classmethod
    def of(cls, store: ObjectStore, channel: str) -> Policy:
        """The lists as they are now; raises DataError where one is damaged."""
        return cls(channel, read_allowed(store, channel), frozenset(read_takedown(store, channel)))

    def __bool__(self) -> bool:
        return self.allowed is not None or bool(self.taken_down)


def forbidden_in(store: ObjectStore, channel: str, output: Output) -> list[str]:
    """Why a model or a token cache may not be learned from or served: a sentence each; [] if it may.

    A model is asked about its own training text and about that of every model that it started from.

    Raises:
        DataError: one of the channel's lists, or a table that has to be read, is damaged.
    """
    policy = Policy.of(store, channel)
    return why_forbidden(policy, output) if policy else []


def why_forbidden(policy: Policy, output: Output) -> list[str]:
    """`forbidden_in` for lists that were read before."""
    found: list[str] = []
    for model, cache in caches_behind(output):
        own = [*_by_license(policy, cache), *_by_takedown(policy, cache)]
        through = f"{model} learned from it: " if model and model is not output else ""
        found += [f"{through}{why}" for why in own]
    return list(dict.fromkeys(found))


def caches_behind(output: Output) -> Iterator[tuple[Output | None, Output]]:
    """The token caches behind an output, and the model that learned each; its own first."""
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
    """What a cache was made from, back to the curated documents; ends where the store has no more."""
    one: Output | None = cache
    while one is not None:
        try:
            one = one.input("documents")
        except DataError as error:
            log.warning("%s: what it was made from is gone: %s", one, error)
            return
        if one is not None:
            yield one


def _by_license(policy: Policy, cache: Output) -> Iterator[str]:
    if policy.allowed is None:
        return
    for output in documents_behind(cache):
        counts = output.manifest.metadata.get("licenses")
        if counts:
            for name, number in policy.allowed.forbidden(counts).items():
                yield (
                    f"{cache} holds {plural(number, 'text')} under {name}, which channel {policy.channel!r} "
                    f"does not allow (it allows {policy.allowed.shown})"
                )
            return
    if not policy.allowed.allows(UNKNOWN):
        yield (
            f"{cache} does not say under which licences its texts are, and channel {policy.channel!r} allows "
            f"{policy.allowed.shown} only"
        )


def _by_takedown(policy: Policy, cache: Output) -> Iterator[str]:
    if not policy.taken_down:
        return
    made_from = list(documents_behind(cache))
    if any(_was_left_out(output, policy.taken_down) for output in made_from):
        return
    named = {one: one for one in policy.taken_down} | _kept_for(made_from, policy.taken_down)
    held: dict[str, int] = {}
    for output in (
        cache,
        *(o for o in made_from if o.manifest.stage == "balance" and o.manifest.options.get("augment")),
    ):
        held |= rows_of(output, sorted(named), "train")
    if held:
        shown = ", ".join(sorted({named[one][:12] for one in held})[:_SHOWN])
        texts = plural(len(held), "text")
        yield f"{cache} holds {texts} that channel {policy.channel!r} took down ({shown} ...)"


def _was_left_out(curated: Output, ids: frozenset[str]) -> bool:
    """Whether `curate` was given exactly this list: then it left all of it out, copies too."""
    given = curated.manifest.inputs.get("exclude")
    return given is not None and given.get("content_digest") == digest(sorted(ids))


def _kept_for(outputs: Sequence[Output], ids: frozenset[str]) -> dict[str, str]:
    """Text that was kept as the best copy -> the copy of it, in `ids`, that was dropped."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, str] = {}
    for path in (
        p for o in outputs if o.entries("duplicates.parquet") for p in o.paths("duplicates.parquet")
    ):
        table = pq.read_table(path, columns=["id", "kept_id"], partitioning=None)
        hit = table.filter(pc.is_in(table["id"], _values(ids))).to_pylist()
        found |= {row["kept_id"]: row["id"] for row in hit}
    return found


def _values(ids: Iterable[str]):  # type: ignore[no-untyped-def]  # a pyarrow.Array
    import pyarrow as pa

    return pa.array(sorted(ids), pa.string())


def rows_of(output: Output, ids: Sequence[str], split: str = "") -> dict[str, int]:
    """How many rows of an output's tables are about each of `ids`; those of one split, where they say it."""
    found: dict[str, int] = defaultdict(int)
    for entry in output.entries("*.parquet"):
        name = entry.path.rpartition("/")[2]
        if not name.startswith("tokens-") and not (split and name.startswith(("valid", "test", "confirm"))):
            for one, rows in rows_with(output.path_of_ids(entry), ids, split).items():
                found[one] += rows
    return dict(found)


def rows_with(path: Path, ids: Sequence[str], split: str = "") -> dict[str, int]:
    """How many rows of a Parquet file are about each of `ids`, by its columns `id` and `parent_id`.

    Args:
        split: only rows of this split, where the file has such a column.

    Raises:
        DataError: it is not readable.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, int] = defaultdict(int)
    try:
        file = pq.ParquetFile(path)
        columns = [name for name in _ID_COLUMNS if name in file.schema_arrow.names]
        of_split = ["split"] if split and "split" in file.schema_arrow.names else []
        for group in range(file.num_row_groups):
            for column in columns:
                wanted = [i for i in ids if _may_hold(file, group, column, i)]
                if not wanted:
                    continue
                table = file.read_row_group(group, columns=[column, *of_split])
                if of_split:
                    table = table.filter(pc.equal(table["split"].cast(pa.string()), split))
                values = table[column].cast(pa.string())
                values = values.filter(pc.is_in(values, _values(wanted)))
                for row in pc.value_counts(values.combine_chunks()).to_pylist():
                    found[row["values"]] += row["counts"]
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file: {in_words(error)}; restore it") from error
    return dict(found)


def _may_hold(file: pq.ParquetFile, group: int, column: str, value: str) -> bool:
    """Whether the statistics of a row group leave room for `value`."""
    row_group = file.metadata.row_group(group)
    index = next(
        (i for i in range(row_group.num_columns) if row_group.column(i).path_in_schema == column), None
    )
    if index is None:
        return False
    statistics = row_group.column(index).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(str(statistics.min) <= value <= str(statistics.max))
