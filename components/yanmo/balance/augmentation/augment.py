"""Augmented copies: how the copies of a repeated document differ from it.

Of a document that is in train more than once, one copy is unchanged; every other goes through the rules of
its genre, with random numbers drawn from the seed, the document's id and the copy's number. So an augmented
output reads every class as often as a plain one with the same quotas: only then can they be compared fairly.
A copy that no rule changed, or that would share a run with held-out text, stays a plain repeat. Curate
removed every training document that shares a run of 13 Han characters with the evaluation set (of modern
text, by its share), and augmentation could bring such a run back: a training document with 于此 where a
held-out one has 于斯 is one synonym away.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.balance.augmentation.rewriting import Rewrite, rewrites
from yanmo.balance.augmentation.rules import AugmentRules, parse_rules
from yanmo.balance.augmentation.synonyms import Synonyms
from yanmo.chinese.text_runs import Runs, compared, run_hashes
from yanmo.common.hash_set import distinct
from yanmo.formats.documents import read_documents
from yanmo.formats.records import TEXT_FORM

REPEAT = "repeat"
"""The rule of a copy that is its parent's text unchanged."""
COLUMNS = ("id", "text", "genre", "loss_spans")
"""Columns of documents of which copies are made."""


RUN = 13
"""Length of a run, Han characters: the default of curate's --overlap-characters; shorter runs are idioms."""


class HeldOut:
    """The runs of held-out documents."""

    def __init__(self, texts: Iterable[Sequence[str]], run: int = RUN, form: str = TEXT_FORM) -> None:
        """Args:
        texts: batches of texts; only the hashes of a batch are kept.
        run: length of a run, Han characters (in modern text units).
        form: text form of all texts.
        """
        self._form = form
        parts = [run_hashes(compared(batch, form), run)[0] for batch in texts]
        self._runs = Runs(run, distinct(np.concatenate([*parts, np.zeros(0, np.uint64)])))

    @classmethod
    def of_files(cls, paths: Iterable[Path], form: str) -> HeldOut:
        """Return the runs of the documents in these Parquet files."""
        return cls((read_documents(path, ("text",))["text"].to_pylist() for path in paths), form=form)

    def shared(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which of the texts share a run with a held-out document."""
        return self._runs.found_in(compared(texts, self._form))


@dataclass(frozen=True)
class Augmented:
    """A copy of a document."""

    text: str
    rule: str
    """Rules that changed the text, joined by `+`, or `repeat`."""
    shared: bool = False
    """It stayed a plain repeat as it would have shared a run with held-out text."""


@dataclass(frozen=True)
class Augmenter:
    """Makes copies by the rules; equal seeds give equal copies."""

    rules: AugmentRules
    words: Synonyms
    held_out: HeldOut
    seed: int
    classical: bool = True
    """Whether the texts are in the form classical-1."""
    _by_genre: dict[str, dict[str, Rewrite]] = field(default_factory=dict)

    def copies(self, documents: Iterable[tuple[str, str, str, int, bool]]) -> list[Augmented]:
        """Return the copies of some documents.

        Args:
            documents: id, genre, text, number of the copy (from 1), and whether it may be changed.
        """
        given = list(documents)
        found = [
            self._rewrite(*document[:4]) if document[4] else Augmented(document[2], REPEAT)
            for document in given
        ]
        changed = [i for i, copy in enumerate(found) if copy.rule != REPEAT]
        for i in np.flatnonzero(self.held_out.shared([found[i].text for i in changed])).tolist():
            found[changed[i]] = Augmented(given[changed[i]][2], REPEAT, shared=True)
        return found

    def _rewrite(self, id: str, genre: str, text: str, copy: int) -> Augmented:
        if genre not in self._by_genre:
            self._by_genre[genre] = rewrites(genre, self.words, self.classical)
        available, applied, result = self._by_genre[genre], [], text
        digest = hashlib.sha256(f"{self.seed}\0augment\0{copy}\0{id}".encode()).digest()
        chance = Random(int.from_bytes(digest, "big"))
        for rule, probability in self.rules.of(genre).items():
            if rule in available:
                before, result = result, available[rule](result, probability, chance)
                applied += [rule] if result != before else []
        return Augmented(result, "+".join(applied) if result != text else REPEAT)

    def of_table(self, table: pa.Table, copies: Sequence[int]) -> list[Augmented]:
        """Return the copies of the rows of a table that has COLUMNS."""
        columns = [table[name].to_pylist() for name in ("id", "genre", "text")]
        free = table["loss_spans"].is_null().to_pylist()  # spans are character positions
        return self.copies(zip(*columns, copies, free, strict=True))


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What a worker makes its augmenter of."""

    rules: str
    """As in --augment."""
    words: Path
    """The file of synonyms."""
    words_sha256: str
    held_out: tuple[Path, ...]
    """Files of documents from which no run may come into train."""
    form: str
    """Text form of all documents."""
    seed: int


@functools.lru_cache(maxsize=1)
def augmenter(of: Augmentation) -> Augmenter:
    """Return the augmenter of this process: the held-out text is read once, for all of its tasks."""
    held_out = HeldOut.of_files(of.held_out, of.form)
    classical = of.form.startswith("classical")
    return Augmenter(parse_rules(of.rules), Synonyms.read(of.words), held_out, of.seed, classical)


def copy_digest(parent: str, copy: int, made: Augmented | None = None) -> bytes:
    """Return the id of a copy, 32 bytes: a digest of parent, number and, if it was changed, rule and text."""
    if made is None or made.rule == REPEAT:
        return hashlib.sha256(f"{parent}\0repeat\0{copy}".encode()).digest()
    return hashlib.sha256(f"{parent}\0{made.rule}\0{copy}\0{made.text}".encode()).digest()


def count_rules(made: Counter[str]) -> dict[str, int]:
    """Rule (or rules joined by `+`) -> number of copies that it made, the largest number first."""
    return dict(sorted(made.items(), key=lambda item: (-item[1], item[0])))
