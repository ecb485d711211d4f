"""The text that a model was trained on: its own, and that of each model it started from.

Which outputs these are stand in manifests. Whether one text is in them, by its id, costs the indexes of the
caches (about 100 bytes per text), curate's table of decisions and, where texts were varied, balance's files.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from yanmo.common.errors import DataError
from yanmo.store.output import Output

log = logging.getLogger(__name__)
_ID_COLUMNS = ("id", "parent_id")


@dataclass
class TrainingText:
    """What is known of a model's training text."""

    texts: list[Output] = field(default_factory=list)
    """Curated documents, the model's own first, each once."""
    unknown: list[str] = field(default_factory=list)
    """Why there may be more training text, a sentence each; empty if `texts` is all of it."""

    def note(self, model: Output, why: object) -> None:
        """Note that there may be more text behind a model."""
        self.unknown.append(f"{model}: {why}")

    def digests(self) -> set[str]:
        """Content digests of the texts."""
        return {text.content_digest for text in self.texts}


def training_text(model: Output) -> TrainingText:
    """Return the text of `model`: from caches and balanced documents back to curated documents.

    What is no longer in the store, or came from outside of it, is noted in `unknown`; nothing is raised.
    """
    found = TrainingText()
    for one in _models_behind(model, found.note):
        with _noting_a_gap(one, found.note):  # a lost text must not hide the model it started from
            _add_text(one, found)
        if one.manifest.inputs.get("model") and "manifest_uri" not in one.manifest.inputs["model"]:
            found.note(one, "began from a model from outside the store")
    return found


_Note = Callable[[Output, object], None]


def _models_behind(model: Output, note: _Note) -> Iterator[Output]:
    """Yield the model and those that it started from, each once; what cannot be opened is noted."""
    waiting, seen = [model], set()
    while waiting:
        one = waiting.pop(0)
        if one.content_digest not in seen:
            seen.add(one.content_digest)
            yield one
            with _noting_a_gap(one, note):
                base = one.input("model")
                waiting += [base] if base else []


@contextlib.contextmanager
def _noting_a_gap(model: Output, note: _Note) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        note(model, error)


def _add_text(model: Output, found: TrainingText) -> None:
    cache = model.input("token_cache")
    text = cache.input("documents") if cache else None
    if text is None:
        found.note(model, "does not say which documents it was trained on")
        return
    while (before := text.input("documents")) is not None:
        text = before
    if text.content_digest not in found.digests():
        found.texts.append(text)


def is_trained_on(output: Output, document: str) -> bool:
    """Return whether a token cache, what a tokenizer was counted from, or a model or one that it started from
    holds a text or a copy of it.

    Raises:
        DataError: a table that has to be read is damaged.
    """
    return any(_holds(cache, document) for cache in _caches_behind(output))


def _caches_behind(output: Output) -> Iterator[Output]:
    """Yield the token caches behind an output, its own first."""
    if output.manifest.stage != "train":
        yield output
        return
    for model in _models_behind(output, _warn):
        with _noting_a_gap(model, _warn):
            if cache := model.input("token_cache"):
                yield cache


def _warn(model: Output, why: object) -> None:
    log.warning("%s: what it learned from cannot be looked at: %s", model, why)


def _documents_behind(cache: Output) -> Iterator[Output]:
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
    made_from = list(_documents_behind(cache))
    names = sorted({document, *_kept_for(made_from, {document})})
    if cache.manifest.stage == "tokenizer":  # counted from these files alone, and keeps no index of them
        files = [entry.path for one in made_from[:1] for entry in one.entries("train-*.parquet")]
        return any(rows_with(made_from[0].path(file), names) for file in files)
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
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from yanmo.formats.decisions import COPIES

    found: dict[str, int] = defaultdict(int)
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
    return dict(found)
