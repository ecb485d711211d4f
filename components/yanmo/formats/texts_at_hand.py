"""Texts of a channel that an imported tokenizer is tried on: the evaluation set and some training text."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from yanmo.common.errors import DataError
from yanmo.formats.documents import read_documents
from yanmo.formats.round_trip import in_lines, probe_texts
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.pointers import open_named, pointer_name, read_pointer

log = logging.getLogger(__name__)
_WHOLE = 2_000_000
"""Characters of the evaluation set that are tried as whole documents; of the rest, each character once."""
_FILES, _SAMPLE = 16, 200_000
"""Sample of the training text: number of files, evenly spread, and characters in all."""


def texts_at_hand(store: ObjectStore, channel: str) -> Iterator[tuple[str, str]]:
    """Names and texts: the built-in ones, and those of the outputs that the channel's pointers name.

    An output that cannot be read is left out with a warning, as it is not what is being imported.
    """
    yield from probe_texts()
    if channel == "none":
        return
    for pointer in ("evaluation_set", "curate"):
        try:
            reference = read_pointer(store, channel, pointer)
            if reference is None:
                continue
            found = open_named(store, reference, pointer_name(channel, pointer))
            log.info("trying the tokenizer on %s", found)
            yield from evaluated_texts(found) if pointer == "evaluation_set" else training_sample(found)
        except DataError as error:
            log.warning("the tokenizer is not tried on the %s of channel %r: %s", pointer, channel, error)


def evaluated_texts(evaluation_set: Output) -> Iterator[tuple[str, str]]:
    """Yield the documents of an evaluation set; from 2,000,000 characters on, each character once."""
    left, more = _WHOLE, set[str]()
    for entry in evaluation_set.entries("*.parquet"):
        for identifier, text in _texts(evaluation_set, entry.path):
            left -= len(text)
            if left >= 0:
                yield f"document {identifier} of {evaluation_set}", text
            else:
                more.update(text)
    yield from in_lines(sorted(more), f"a character of {evaluation_set}")


def training_sample(documents: Output) -> Iterator[tuple[str, str]]:
    """Yield the first training documents of some files, evenly spread."""
    entries = documents.entries("train-*.parquet")
    chosen = entries[:: -(-len(entries) // _FILES) or 1]
    for entry in chosen:
        left = _SAMPLE // len(chosen)
        for identifier, text in _texts(documents, entry.path):
            yield f"document {identifier} of {documents}", text[:left]  # one document may be longer than that
            left -= len(text)
            if left <= 0:
                break


def _texts(output: Output, name: str) -> Iterator[tuple[str, str]]:
    table: pa.Table = read_documents(output.path(name), ("id", "text"))
    for batch in table.to_batches(max_chunksize=1024):
        yield from zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True)
