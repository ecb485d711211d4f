"""Which pieces a tokenizer has, and their scores.

All characters of the training text that are frequent enough, all of printable ASCII and white space, then as
many of jieba's words as there is room for, the most useful first. Pieces of Latin letters, marks and blanks
(learned_pieces.py) take the place of those that save fewer tokens. Scores of words are jieba's own
frequencies: scores estimated on the corpus keep fewer of jieba's word boundaries (0.9978 against 0.9991 on
classical prose at 32,768 pieces).
"""

from __future__ import annotations

import functools
import logging
import math
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yanmo.common.child_processes import preload
from yanmo.common.errors import DataError
from yanmo.common.logs import Progress
from yanmo.common.words import plural
from yanmo.engine.maps import pool
from yanmo.formats.documents import document_batches
from yanmo.tokenize.byte_level import BYTE_SCORE, BYTES
from yanmo.tokenize.learned_pieces import RUN, Learned, learn
from yanmo.tokenize.lexicon import Lexicon, dictionary_path, read_lexicon, with_user_words
from yanmo.tokenize.segmenter import Segmenter, text_and_offsets
from yanmo.tokenize.shards import BATCH_DOCUMENTS, LESS

log = logging.getLogger(__name__)
SPECIAL = ("<|bos|>", "<|eos|>", "<|pad|>", "<unk>")
TAGS = tuple(f"<|tag_{i:02d}|>" for i in range(59))
ROLES = ("system", "user", "assistant")
"""Roles in a chat. They are ordinary pieces, so that templates write them as text, as one token each."""
CHAT = ("<|im_start|>", "<|im_end|>")
RESERVED = (*SPECIAL, *TAGS, *ROLES, *CHAT)
"""The first ids of every vocabulary, whatever the text."""
ALWAYS = frozenset([*map(chr, range(0x20, 0x7F)), "\n", "\r", "\t", "\u3000"])
SPECIAL_SCORE = -10000.0
CHARACTER_SHARE = 0.85
"""Largest share of the vocabulary for single characters."""
_LETTER_EVERY = 1000
"""Text with fewer Latin letters, one in so many characters, keeps the vocabulary that it has without runs."""
_MANY_UNSEEN = 0.1
"""Share of the words from which on a vocabulary is called too large for its text."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Counts:
    """Characters and words of the training text."""

    characters: Array = field(default_factory=lambda: np.zeros(0x110000, np.int64))
    """Counts by code point."""
    words: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Counts by id of the full dictionary's segmenter."""
    runs: Counter[str] = field(default_factory=Counter)
    """Of letters, marks and blanks, in documents with Latin letters."""
    genres: set[str] = field(default_factory=set)

    def add(self, batch: pa.RecordBatch, segmenter: Segmenter) -> None:
        """Count a batch of documents (columns text and genre)."""
        ids, _, _ = segmenter.encode(batch["text"])
        self._add_words(np.bincount(ids, minlength=segmenter.vocab_size))
        text, _ = text_and_offsets(batch["text"])
        codes = np.frombuffer(text.tobytes().decode("utf-8").encode("utf-32-le"), np.uint32)
        found = np.bincount(codes)  # not of all 1.1 million code points for each batch
        self.characters[: len(found)] += found
        if found[ord("A") : ord("z") + 1].any():  # most batches have no letter, and looking takes a while
            has_latin = pc.match_substring_regex(batch["text"], "[A-Za-z]{2}")
            for value in batch["text"].filter(has_latin).to_pylist():
                self.runs.update(RUN.findall(value))
        self.genres.update(batch["genre"].unique().to_pylist())

    def merge(self, other: Counts) -> None:
        """Add the counts of other documents, made with the same segmenter."""
        self.characters += other.characters
        self._add_words(other.words)
        self.runs.update(other.runs)
        self.genres |= other.genres

    def _add_words(self, words: Array) -> None:
        if not len(self.words):
            self.words = words
        elif len(words):
            self.words += words


@dataclass(frozen=True)
class Vocabulary:
    """Pieces in the order of their ids, with their scores."""

    pieces: list[str]
    scores: list[float]
    min_character_count: int
    """The count actually used: raised while characters would take more than their share."""
    num_characters: int
    num_words: int


def dictionary_segmenter(lexicon: Lexicon) -> Segmenter:
    """Return a segmenter over the whole dictionary: what jieba (HMM off) would do."""
    words = [word for word, count in lexicon.frequency.items() if count]
    return Segmenter.of([*BYTES, *words], [*[BYTE_SCORE] * 256, *lexicon.scores(words)])


def choose(
    counts: Counts,
    lexicon: Lexicon,
    words: Segmenter,
    *,
    size: int,
    min_character_count: int,
    dictionary_weight: float,
    character_share: float = CHARACTER_SHARE,
) -> Vocabulary:
    """Return the vocabulary of `size` pieces.

    Args:
        counts: counts of the training text.
        words: the segmenter that counted them.
        size: all ids, with special tokens, tags and bytes.
        min_character_count: a character seen less often is written as bytes.
        dictionary_weight: a word ranks by its share of the text plus this times its share in jieba.
        character_share: largest share of the pieces proper that single characters may take; the rarest of
            them are written as bytes.

    Raises:
        DataError: the size is too small for the obligatory pieces.
    """
    room = size - len(RESERVED) - len(BYTES)
    if room < len(ALWAYS):
        raise DataError(
            f"--vocab-size {size}: special tokens, bytes and ASCII alone need {size - room + len(ALWAYS)}"
        )
    characters, least = _characters(counts.characters, room, min_character_count, character_share)
    ranked = _rank(counts, lexicon, words, dictionary_weight)[: room - len(characters)]
    saved = {c: int(counts.characters[ord(c)]) * (len(c.encode()) - 1.0) for c in characters}
    saved |= {word: use * (len(word) - 1) for word, use in ranked} | dict.fromkeys(ALWAYS, math.inf)
    learned = _learned(counts, lexicon, saved, room)
    saved |= {piece: one.saved for piece, one in learned.items() if len(piece) > 1}
    kept = sorted(saved, key=lambda piece: (-saved[piece], piece))[:room]
    chosen = [piece for piece in kept if len(piece) > 1]
    least = max([least, *(int(counts.characters[ord(c)]) + 1 for c in characters.difference(kept))])
    _warn_of_unseen(chosen, counts, words, size)
    score = {p: learned[p].score if p in learned else lexicon.scores([p])[0] for p in kept}
    ordered = sorted(score, key=lambda piece: (-score[piece], piece))
    fixed = dict.fromkeys(RESERVED, SPECIAL_SCORE)
    # As likely as any, so that no pieces learned cut a role in two.
    fixed |= dict.fromkeys(ROLES, max([*lexicon.scores(ROLES[:1]), *(one.score for one in learned.values())]))
    if len(kept) < room:
        log.warning(
            "the text has only %s to choose from: the vocabulary is smaller than --vocab-size %d",
            plural(len(chosen), "word"),
            size,
        )
    return Vocabulary(
        [*fixed, *BYTES, *ordered],
        [*fixed.values(), *[BYTE_SCORE] * 256, *map(score.__getitem__, ordered)],
        least,
        len(kept) - len(chosen),
        len(chosen),
    )


def _warn_of_unseen(chosen: list[str], counts: Counts, words: Segmenter, size: int) -> None:
    """A small text leaves room for words of jieba's dictionary that it does not have: ids never trained."""
    unseen = [word for word in chosen if word in words.ids and not counts.words[words.ids[word]]]
    if len(unseen) > _MANY_UNSEEN * len(chosen):
        log.warning(
            "%d of the vocabulary's %s are not in the training text (%s ...), which has only %s "
            "characters: give more text, or a --vocab-size of about %d",
            len(unseen),
            plural(len(chosen), "word"),
            ", ".join(unseen[:3]),
            f"{int(counts.characters.sum()):,}",
            size - len(unseen),
        )


def _characters(counted: Array, room: int, least: int, share: float) -> tuple[set[str], int]:
    """Return the characters that become pieces, and the least count among them."""
    seen = {chr(code): int(counted[code]) for code in np.flatnonzero(counted)}
    limit = max(int(room * share), len(ALWAYS))
    while True:
        chosen = {c for c, n in seen.items() if n >= least} | ALWAYS
        if len(chosen) <= limit:
            return chosen, least
        least += 1


def _learned(counts: Counts, lexicon: Lexicon, saved: dict[str, float], room: int) -> dict[str, Learned]:
    """Pieces of Latin letters, marks and blanks; none for a text that has hardly a letter.

    Args:
        saved: tokens saved by the pieces chosen so far.
        room: pieces to choose in all.
    """
    letters = sum(int(counts.characters[ord(c)]) for c in string.ascii_letters)
    if letters * _LETTER_EVERY < counts.characters.sum():
        return {}
    taken, total = lexicon.frequency.keys() | RESERVED, int(counts.words.sum())
    return learn(counts.runs, taken, [*saved.values()], room, max(total, 1), 1 / lexicon.total)


def _rank(counts: Counts, lexicon: Lexicon, words: Segmenter, weight: float) -> list[tuple[str, float]]:
    """Words and how often the text uses them, jieba's share of them weighed in, the most used first.

    Words of a user dictionary that occur in the text come before all others, with infinite use.
    """
    names = [name for name in lexicon.words() if name not in ROLES]
    total = max(int(counts.words.sum()), 1)
    seen = counts.words[np.fromiter(map(words.ids.__getitem__, names), np.int64, len(names))]
    known = np.fromiter(map(lexicon.frequency.__getitem__, names), np.int64, len(names))
    use = seen / total + weight * known / lexicon.total
    wanted = np.array([name in lexicon.user_words for name in names], bool) & (seen > 0)
    order = np.lexsort((-use, ~wanted)).tolist()
    use[wanted] = np.inf
    return [(names[i], float(use[i] * total)) for i in order]


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
