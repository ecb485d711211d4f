"""The `tokenize` stage: documents -> tokenizer and token cache."""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from typing import Any

import numpy as np

from yanmo.common.child_processes import preload
from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import DataError
from yanmo.common.freed_memory import trim_heap
from yanmo.common.given_file import MIB, read_given
from yanmo.common.logs import Progress, human_bytes
from yanmo.common.words import plural
from yanmo.engine.maps import begin, is_remote, paths_for_tasks, pool, tasks_at_a_time
from yanmo.formats.documents import evaluated_texts, text_form, training_sample
from yanmo.formats.packing_settings import SPLITS
from yanmo.formats.round_trip import check_round_trip, probe_texts
from yanmo.formats.token_cache import GENRES_FILE, TOKENIZER, SpecialIds
from yanmo.nights.observer import NightObserver
from yanmo.stage.stage_run import KeyInput, Prepared, Steps
from yanmo.store.commit import Attempt, Result
from yanmo.store.manifest import MAKE_AGAIN, FileEntry, file_sha256
from yanmo.store.opening import store_of
from yanmo.store.output import Output
from yanmo.tokenize.config import TokenizeConfig
from yanmo.tokenize.foreign import read_segmenter
from yanmo.tokenize.jieba_agreement import shares_of
from yanmo.tokenize.lexicon import (
    USER_FILE,
    Lexicon,
    dictionary_path,
    read_lexicon,
    user_lines,
    with_user_words,
)
from yanmo.tokenize.parts import Encode, Shard, TokenizeRun, done_of, find_parts, make_part, take_over
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.shards import LESS, Done, FileTask, tokenize_file
from yanmo.tokenize.tokenizer_files import special_ids, write_tokenizer
from yanmo.tokenize.vocabulary import TAGS, Counts, Vocabulary, choose, count, dictionary_segmenter

log = logging.getLogger(__name__)
TOKENIZER_REVISION = 4
"""Raised by hand when the same text and options give another tokenizer."""
_CHOICE_OPTIONS = ("min_character_count", "dictionary_weight")
_VOCABULARY_OPTIONS = ("vocab_size", *_CHOICE_OPTIONS)
_MOST_DICTIONARY_BYTES = 64 * MIB
"""Of a user dictionary; that of jieba has 5."""
_BYTES_PER_WORKER = 64 << 20


def prepare(run: TokenizeRun) -> Prepared[Output]:
    """Return the tokenizer, which is part of the key: the given one, else one made from the training text."""
    given, options = run.inputs[TOKENIZER], run.options
    begin(options, run.store)
    if given is not None:
        for name in ("tokenizer.json", GENRES_FILE):
            given.path(name)
        log.info(
            "using %s as it is; --vocab-size and the other options of the vocabulary have no effect", given
        )
        return Prepared(given)
    dictionary, user = dictionary_path(), read_user_dictionaries(options)
    inputs: dict[str, KeyInput] = {
        "documents": run.input("documents"),
        "dictionary": {"content_digest": file_sha256(dictionary), "uri": "jieba/dict.txt"},
    }
    if user:
        digest = hashlib.sha256(user).hexdigest()
        inputs["user_dictionary"] = {"content_digest": digest, "uri": options.user_dictionary}

    def build(attempt: Attempt) -> Result:
        lexicon = with_user_words(read_lexicon(dictionary), user)
        return make_tokenizer(attempt, run.input("documents"), lexicon, options)

    part = run.part(
        TOKENIZER,
        TOKENIZER_REVISION,
        {name: getattr(options, name) for name in _VOCABULARY_OPTIONS},
        inputs,
        build,
    )
    return Prepared(part, {TOKENIZER: part})


def read_user_dictionaries(options: TokenizeConfig) -> bytes:
    """Return the lines of the dictionaries that `--user-dictionary` names, one after another.

    Raises:
        DataError: one is missing, or a line is not in jieba's format.
    """
    found = b""
    what = "a text file with lines of `word [frequency] [tag]`"
    for place in filter(None, map(str.strip, options.user_dictionary.split(","))):
        shown = f"--user-dictionary {place}"
        try:
            if "://" in place:
                folder, _, name = place.rpartition("/")
                data = store_of(options, folder).read(name)[0]
            else:
                data = read_given(place, what, shown=shown, most_bytes=_MOST_DICTIONARY_BYTES)
        except FileNotFoundError as error:
            raise DataError(f"{shown}: expected {what}: no such file") from error
        found += user_lines(data, place)
    return found


def make_tokenizer(attempt: Attempt, documents: Output, lexicon: Lexicon, options: TokenizeConfig) -> Result:
    """Count the training text, choose the vocabulary and write the tokenizer's files.

    Raises:
        DataError: there is no training text.
    """
    words = dictionary_segmenter(lexicon)
    workers = _workers(options, documents.entries("train-*.parquet"))
    counts = count(paths_for_tasks(documents, "train-*.parquet"), words, lexicon.user, workers)
    if not counts.characters.sum():
        raise DataError(
            f"{documents}: its training files hold no text; look at the report of the stage that made "
            "it (`yanmo store show`)"
        )
    chosen = {name: getattr(options, name) for name in _CHOICE_OPTIONS}
    vocabulary = choose(counts, lexicon, words, size=options.vocab_size, **chosen)
    special = special_ids(len(vocabulary.pieces), counts.genres)
    if len(special.genres) < len(counts.genres):
        log.warning(
            "%s, but only %d genre tags: the last genres have no tag",
            plural(len(counts.genres), "genre"),
            len(TAGS),
        )
    write_tokenizer(attempt, vocabulary, special)
    if lexicon.user:
        attempt.write(USER_FILE, lexicon.user)
    log.info(
        "vocabulary of %s: %s that occur %d times or more, %s",
        plural(special.vocab_size, "id"),
        plural(vocabulary.num_characters, "character"),
        vocabulary.min_character_count,
        plural(vocabulary.num_words, "word"),
    )
    return Result(
        counts={"vocab_size": special.vocab_size},
        metadata=vars(special)
        | {"text_form": text_form(documents)}
        | _described(vocabulary, counts, lexicon),
    )


def _described(vocabulary: Vocabulary, counts: Counts, lexicon: Lexicon) -> dict[str, Any]:
    """Description of the tokenizer for its manifest."""
    pieces = {ord(piece) for piece in vocabulary.pieces if len(piece) == 1}
    total = int(counts.characters.sum())
    covered = sum(int(counts.characters[code]) for code in pieces)
    described: dict[str, Any] = {
        "num_characters": vocabulary.num_characters,
        "num_words": vocabulary.num_words,
        "min_character_count": vocabulary.min_character_count,
        "uncovered_characters_ppm": round(1e6 * (1 - covered / total), 1),
        "dictionary_sha256": lexicon.sha256,
    }
    if lexicon.user:
        described["user_words"] = len(lexicon.user_words)
        described["user_words_in_vocabulary"] = len(lexicon.user_words & set(vocabulary.pieces))
    return described


def work(run: TokenizeRun) -> Result:
    """Tokenize every file that has no part yet, and make the token cache from all parts."""
    tokenizer = run.prepared
    special = SpecialIds.read(tokenizer.path(GENRES_FILE))
    segmenter = read_segmenter(tokenizer.path("tokenizer.json"))
    if segmenter.vocab_size != special.vocab_size:
        raise DataError(
            f"{tokenizer}: vocab_size differs: {special.vocab_size} in {GENRES_FILE}, "
            f"{segmenter.vocab_size} in tokenizer.json; {MAKE_AGAIN}"
        )
    if run.inputs[TOKENIZER] is not None:
        documents = run.input("documents")
        texts = itertools.chain(probe_texts(), evaluated_texts(documents), training_sample(documents))
        check_round_trip(segmenter.reference, texts, f"{tokenizer}")
    shards = Shard.of_run(run, tokenizer)
    trim_heap()
    parts = _parts(run, tokenizer, special, shards, segmenter)
    done = [done_of(part) for part in parts]
    if not any(sum(d.documents.values()) for s, d in zip(shards, done, strict=True) if s.split == "train"):
        raise DataError(
            f"{run.input('documents')}: no training documents; look at the report of the stage that "
            "made it (`yanmo store show`)"
        )
    take_over(run.attempt, parts)
    counts = _counts(shards, done)
    metadata = _metadata(run, tokenizer, segmenter, done)
    _report(run, metadata, done)
    return Result(counts=counts, metadata=metadata, references={TOKENIZER: tokenizer}, used=parts)


def _parts(
    run: TokenizeRun, tokenizer: Output, special: SpecialIds, shards: list[Shard], segmenter: Segmenter
) -> list[Output]:
    """Return the committed part of each shard; missing ones are made now."""
    found = find_parts(run, shards)
    absent = [shard for shard, part in zip(shards, found, strict=True) if part is None]

    def make(shard: Shard, encode: Encode) -> Output:
        return make_part(run, tokenizer, special, shard, encode)

    made = iter(_made(make, absent, _workers(run.options, [shard.entry for shard in absent]), segmenter))
    return [next(made) if part is None else part for part in found]


def _made(
    make: Callable[[Shard, Encode], Output], shards: list[Shard], workers: int, segmenter: Segmenter
) -> list[Output]:
    """`make` of every shard, in their order: encoded by workers, committed by a thread for each of them."""
    progress, made = Progress(log, "tokenized file", len(shards), unit="files"), list[Output]()
    log.info("%s in %s", plural(len(shards), "file"), plural(workers, "process", "processes"))
    if workers <= 1:
        for shard in shards:
            made.append(make(shard, lambda job: tokenize_file(job, segmenter)))
            progress.add(1)
        return made
    preload(tokenize_file.__module__)
    with pool(workers, LESS) as encoders:

        def encode(job: FileTask) -> Done:
            return encoders.call(tokenize_file, job, about=f"{job.documents}")

        coming = [encoders.in_thread(make, shard, encode) for shard in shards]
        for one in as_completed(coming):
            one.result()
            progress.add(1)
        return [one.result() for one in coming]


def _workers(options: TokenizeConfig, files: Sequence[FileEntry]) -> int:
    """Processes to use: --workers, else one per CPU but no more than pay off for the text."""
    if is_remote():
        return tasks_at_a_time(options.workers)
    auto = min(usable_cpus(), 1 + sum(file.bytes for file in files) // _BYTES_PER_WORKER)
    return int(max(1, min(options.workers or auto, len(files))))


def _counts(shards: list[Shard], done: list[Done]) -> dict[str, Any]:
    """Return documents, tokens and characters by split and genre."""
    counts: dict[str, Any] = {}
    for name in ("documents", "tokens", "characters"):
        counts[name] = {}
        for split in SPLITS:
            total: Counter[str] = Counter()
            for shard, one in zip(shards, done, strict=True):
                if shard.split == split:
                    total.update(getattr(one, name))
            counts[name][split] = dict(sorted(total.items()))
    return counts


def _metadata(run: TokenizeRun, tokenizer: Output, segmenter: Segmenter, done: list[Done]) -> dict[str, Any]:
    used = np.logical_or.reduce([one.used for one in done])
    tokens = sum(sum(one.tokens.values()) for one in done)
    metadata: dict[str, Any] = {
        "vocab_size": segmenter.vocab_size,
        "tokenizer": tokenizer.content_digest,
        "documents": run.input("documents").content_digest,
        "text_form": text_form(run.input("documents")),
        "dictionary": tokenizer.manifest.metadata.get("dictionary_sha256"),
        "unused_ids": int(len(used) - np.count_nonzero(used)),
        "byte_token_share": round(sum(one.byte_tokens for one in done) / max(tokens, 1), 6),
        "judged_documents": sum(one.judged for one in done),
    }
    measured: Counter[str] = sum((one.jieba for one in done), Counter())
    if measured:
        metadata["jieba_agreement"] = shares_of(measured)
    return metadata


def _report(run: TokenizeRun, metadata: dict[str, Any], done: list[Done]) -> None:
    """Report in log and metrics what was made."""
    tokens = sum(sum(one.tokens.values()) for one in done)
    characters = sum(sum(one.characters.values()) for one in done)
    documents = sum(sum(one.documents.values()) for one in done)
    run.telemetry.set("tokens", tokens)
    run.telemetry.set("characters", characters)
    run.telemetry.set("documents", documents)
    run.telemetry.set("text_bytes", sum(one.bytes for one in done))
    run.telemetry.set("byte_tokens_ratio", metadata["byte_token_share"])
    log.info(
        "%s, %.3f per character, %.2f %% of them bytes; %s of text; %s checked",
        plural(tokens, "token"),
        tokens / max(characters, 1),
        100 * metadata["byte_token_share"],
        human_bytes(sum(one.bytes for one in done)),
        plural(metadata["judged_documents"], "document"),
    )
    if "jieba_agreement" in metadata:
        found = metadata["jieba_agreement"]
        run.telemetry.set("jieba_boundary_recall_ratio", found["boundary_recall"])
        log.info(
            "%.2f %% of jieba's word boundaries are token boundaries (%s)",
            100 * found["boundary_recall"],
            plural(int(found["sentences"]), "sentence"),
        )


STEPS = Steps(work, prepare=prepare, observer=NightObserver)
