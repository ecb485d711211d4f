"""Counts what the training text holds, its files in several processes: characters, words, runs of letters."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from yanmo.common.fork_server import preload
from yanmo.common.logs import Progress
from yanmo.engine.maps import pool
from yanmo.formats.documents import document_batches
from yanmo.tokenize.lexicon import dictionary_path, read_lexicon, with_user_words
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.shards import BATCH_DOCUMENTS, LESS
from yanmo.tokenize.vocabulary import Counts, dictionary_segmenter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CountTask:
    """One file of documents to count."""

    documents: Path
    user: bytes
    """Lines of the user dictionaries."""


def count(paths: Sequence[Path], words: Segmenter, user: bytes, workers: int) -> Counts:
    """Return the counts of some files of documents.

    Args:
        words: the segmenter of the whole dictionary, with the words of `user`.
        workers: processes; with one it is done in this process.
    """
    tasks = [CountTask(path, user) for path in paths]
    found, progress = Counts(), Progress(log, "counted file", len(paths), unit="files")
    if workers <= 1:
        for task in tasks:
            _add(found, task, words)
            progress.add()
        return found
    preload(count_file.__module__)
    with pool(workers, LESS) as counters:
        lock = Lock()

        def add(task: CountTask) -> None:
            of_file = counters.call(count_file, task, about=f"{task.documents}")
            with lock:  # the order makes no difference: these are sums, and a set
                found.merge(of_file)
                progress.add()

        for one in [counters.in_thread(add, task) for task in tasks]:
            one.result()
    return found


def count_file(task: CountTask) -> Counts:
    """Return the counts of one file."""
    found = Counts()
    _add(found, task, _words(task.user))
    return found


@functools.lru_cache(maxsize=1)
def _words(user: bytes) -> Segmenter:
    """Return the segmenter of the whole dictionary, made once in a worker process."""
    return dictionary_segmenter(with_user_words(read_lexicon(dictionary_path()), user))


def _add(found: Counts, task: CountTask, words: Segmenter) -> None:
    for batch in document_batches(task.documents, ("text", "genre"), BATCH_DOCUMENTS):
        found.add(batch, words)
