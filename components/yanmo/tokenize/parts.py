"""One committed part per input file, so that a file that did not change is not tokenized again.

    cas/token_shard/<key>/<attempt>/tokens-00000.parquet, documents-00000.parquet

The key of a part: sha256 of the documents file, digest of the tokenizer, split, revision.
So a run that was killed continues after the finished files, and a corpus with one new file costs only
that file. The cache takes over the parts' files under its own names: as hard links in a folder, as
server-side copies on S3. It has no reference to the parts: gc removes those that no run has used for a
while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from yanmo.common.errors import DataError, wrong_in
from yanmo.common.words import plural
from yanmo.engine.maps import add_made, paths_for_tasks
from yanmo.formats.packing_settings import SPLITS
from yanmo.formats.token_cache import SpecialIds
from yanmo.stage.stage_run import StageRun
from yanmo.store.commit import Attempt, Recipe, Result, find_whole
from yanmo.store.manifest import FileEntry
from yanmo.store.output import Output
from yanmo.tokenize.config import TokenizeConfig
from yanmo.tokenize.lexicon import USER_FILE
from yanmo.tokenize.segmenter import Marks
from yanmo.tokenize.shards import Done, FileTask

log = logging.getLogger(__name__)
PART = "token_shard"
REVISION = 3
"""Raised by hand when the same text and tokenizer give other files."""
_REQUESTS = 8
_JUDGED = 1024
"""One document in so many, and the first 16 of each file, are checked against Hugging Face's tokenizer."""
_LEAST_SENTENCES = 125
"""Least sentences per file on which agreement with jieba is measured, however many files there are."""
Encode = Callable[[FileTask], Done]
TokenizeRun = StageRun[TokenizeConfig, Output]
"""`prepare` hands over the tokenizer."""


@dataclass(frozen=True)
class Shard:
    """One file of documents and what its part is made from."""

    entry: FileEntry
    split: str
    recipe: Recipe

    @classmethod
    def of_run(cls, run: TokenizeRun, tokenizer: Output) -> list[Shard]:
        """Return the shards of a run, in the order of the cache."""
        documents = run.input("documents")
        made = f"{documents.manifest.stage}/{documents.manifest.key}"
        return [
            cls(
                entry,
                split,
                Recipe(
                    stage=PART,
                    revision=REVISION,
                    semantic={"split": split},
                    inputs={
                        "documents": {"content_digest": entry.sha256, "uri": f"{made}/{entry.path}"},
                        "tokenizer": tokenizer,
                    },
                ),
            )
            for split in SPLITS
            for entry in documents.entries(f"{split}-*.parquet")
        ]


def find_parts(run: TokenizeRun, shards: list[Shard]) -> list[Output | None]:
    """Return the parts of shards that are already committed, each looked up once; they are pinned."""
    if run.options.force:
        return [None] * len(shards)
    with ThreadPoolExecutor(_REQUESTS) as pool:
        found = list(pool.map(lambda shard: find_whole(run.store, PART, shard.recipe.key), shards))
    here = [part for part in found if part is not None]
    if here:
        run.pin(here)
        run.telemetry.add("outputs", len(here), room="stage", part=PART, result="found")
        log.info("%d of %s were tokenized before", len(here), plural(len(shards), "file"))
    return found


def make_part(
    run: TokenizeRun, tokenizer: Output, special: SpecialIds, shard: Shard, encode: Encode
) -> Output:
    """Return the committed part of one shard, tokenized by `encode` where it is absent."""
    recipe = shard.recipe
    build = partial(_build, run=run, tokenizer=tokenizer, special=special, shard=shard, encode=encode)
    return run.part(PART, recipe.revision, recipe.semantic, recipe.inputs, build)


def _build(
    attempt: Attempt,
    *,
    run: TokenizeRun,
    tokenizer: Output,
    special: SpecialIds,
    shard: Shard,
    encode: Encode,
) -> Result:
    documents = run.input("documents")
    job = FileTask(
        documents=paths_for_tasks(documents, shard.entry.path)[0],
        split=shard.split,
        tokenizer=tokenizer.path("tokenizer.json"),
        tokenizer_digest=tokenizer.content_digest,
        marks=Marks(special.bos, special.eos, special.im_start, special.im_end),
        out=attempt.directory,
        judged=_JUDGED,
        sentences=_sentences(run) if shard.split == "train" else 0,
        user=tokenizer.path(USER_FILE).read_bytes() if tokenizer.entries(USER_FILE) else b"",
    )
    done = encode(job)
    add_made(attempt, [path.name for pair in done.files for path in pair])
    return Result(counts={"tokens": sum(done.tokens.values())}, metadata=done.to_metadata())


def _sentences(run: TokenizeRun) -> int:
    """Return this file's share of the sentences on which agreement with jieba is measured."""
    wanted: int = run.options.agreement_sentences
    files = len(run.input("documents").entries("train-*.parquet"))
    return max(-(-wanted // files), min(wanted, _LEAST_SENTENCES))


def done_of(part: Output) -> Done:
    """Return the result of a shard, from the manifest of its part.

    Raises:
        DataError: the manifest lacks it.
    """
    try:
        return Done.from_metadata(part.manifest.metadata)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{part}: damaged manifest ({wrong_in(error)}); run the tokenize stage with --force"
        ) from error


def take_over(attempt: Attempt, parts: Iterable[Output]) -> None:
    """Take over the files of the parts, in this order, under their names in the cache."""
    pairs = [pair for part in parts for pair in _pairs(part)]
    named: list[tuple[Output, FileEntry, str]] = []
    for number, (part, *entries) in enumerate(pairs):
        for kind, entry in zip(("tokens", "documents"), entries, strict=True):
            named.append((part, entry, f"{kind}-{number:05d}-of-{len(pairs):05d}.parquet"))
    attempt.take_over(named)


def _pairs(part: Output) -> Iterator[tuple[Any, ...]]:
    yield from (
        (part, tokens, documents)
        for tokens, documents in zip(
            part.entries("tokens-*.parquet"), part.entries("documents-*.parquet"), strict=True
        )
    )
