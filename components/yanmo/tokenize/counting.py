"""Counts what the training text holds, its files in several processes: characters, words, runs of letters.

Sentences to compare with jieba's segmentation are taken on the way, so that no file is read once more.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from yanmo.common.fork_server import preload
from yanmo.common.logs import Progress
from yanmo.common.workers import Workers
from yanmo.tokenize.jieba_agreement import sampled
from yanmo.tokenize.lexicon import dictionary_path, read_lexicon, with_user_words
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.shards import LESS, read_documents
from yanmo.tokenize.vocabulary import Counts, dictionary_segmenter

log = logging.getLogger(__name__)
_FILES_SAMPLED = 16
"""Of which sentences are taken, at most."""


@dataclass(frozen=True)
class CountTask:
    """One file of documents to count."""

    documents: Path
    user: bytes
    """Lines of the user dictionaries."""
    is_sampled: bool


@dataclass
class Counted:
    """What some files of documents hold."""

    counts: Counts = field(default_factory=Counts)
    sentences: list[str] = field(default_factory=list)
    """Of the files that are sampled, evenly spread."""


def count(
    paths: Sequence[Path], words: Segmenter, user: bytes, workers: int, with_sentences: bool = False
) -> Counted:
    """The counts of some files of documents.

    Args:
        words: the segmenter of the whole dictionary, with the words of `user`.
        workers: processes; with one it is done in this process.
        with_sentences: takes sentences from at most 16 of the files.
    """
    every = -(-len(paths) // _FILES_SAMPLED) or 1
    tasks = [CountTask(path, user, with_sentences and i % every == 0) for i, path in enumerate(paths)]
    found, progress = Counted(), Progress(log, "counted file", len(paths), unit="files")
    if workers <= 1:
        for task in tasks:
            _add(found, task, words)
            progress.add()
        return found
    preload(count_file.__module__)
    with Workers(workers, LESS) as pool:
        lock = Lock()

        def add(task: CountTask) -> list[str]:
            of_file = pool.call(count_file, task, about=f"{task.documents}")
            with lock:  # the order makes no difference: these are sums, and a set
                found.counts.merge(of_file.counts)
                progress.add()
            return of_file.sentences

        for one in [pool.in_thread(add, task) for task in tasks]:
            found.sentences += one.result()
    return found


def count_file(task: CountTask) -> Counted:
    """The counts of one file."""
    found = Counted()
    _add(found, task, _words(task.user))
    return found


@functools.lru_cache(maxsize=1)
def _words(user: bytes) -> Segmenter:
    """The segmenter of the whole dictionary, made once in a worker process."""
    return dictionary_segmenter(with_user_words(read_lexicon(dictionary_path()), user))


def _add(found: Counted, task: CountTask, words: Segmenter) -> None:
    for batch in read_documents(task.documents, ("text", "genre")):
        found.counts.add(batch, words)
        if task.is_sampled:
            found.sentences += sampled(batch["text"])
