"""Reads the documents to be scored, and the training text of the baselines."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError
from yanmo.common.words import plural
from yanmo.formats.chat_tokens import Turn
from yanmo.formats.documents import read_documents, text_form
from yanmo.formats.records import CONFIRM, GENRES, UNKNOWN_AUTHORS, check_schema, num_characters
from yanmo.store.output import Output

log = logging.getLogger(__name__)
ShortIds = npt.NDArray[np.int64]
_BATCH = 4096
"""Documents read at a time."""
_COLUMNS = ["id", "genre", "title", "text", "parent_id"]
"""Of a training document."""


@dataclass(frozen=True)
class Document:
    """One document of the evaluation set."""

    id: str
    genre: str
    source: str
    text: str
    title: str = ""
    group: str = ""
    """The name of its group (`groups_of`); empty if it has none."""
    turns: tuple[Turn, ...] = ()
    """The turns of a chat."""

    @property
    def charged(self) -> str:
        """What the model is charged for: the text; in a chat, its answers."""
        return "\n".join(turn.text for turn in self.turns if turn.is_answer) if self.turns else self.text

    @property
    def characters(self) -> int:
        """Characters that are not white space; in a chat, those of its answers."""
        return num_characters(self.charged)


def turns_of(row: Mapping[str, Any]) -> tuple[Turn, ...]:
    """The turns of a document (columns text, turns, loss_spans); none where it is no chat."""
    wanted = None if row["loss_spans"] is None else {tuple(span) for span in row["loss_spans"]}
    found = []
    for turn in row["turns"] or ():
        place = (turn["begin"], turn["end"])
        counts = turn["role"] == "assistant" if wanted is None else place in wanted
        found.append(Turn(turn["role"], row["text"][slice(*place)], counts))
    return tuple(found)


def genre_order(genre: str) -> tuple[int, str]:
    """Sort key of a genre: 诗 词 文 赋 first, others by name."""
    return (GENRES.index(genre) if genre in GENRES else len(GENRES), genre)


def check_text_form(path: Path, form: str) -> None:
    """Refuse a documents file whose text is not written in `form`.

    Raises:
        DataError: says which form it has.
    """
    found = (pq.read_schema(path).metadata or {}).get(b"yanmo.text_form", b"?").decode()
    if found != form:
        raise DataError(
            f"{path}: its text has form {found!r}, expected {form!r}; results of different forms are "
            "never compared; run `yanmo curate` again"
        )


def check_same_form(evaluation_set: Output, output: Output, what: str) -> None:
    """Refuse a model, or text, of another form than the evaluation set's.

    Raises:
        DataError: says both forms.
    """
    found, expected = text_form(output), text_form(evaluation_set)
    if found != expected:
        raise DataError(
            f"{output}: {what} text of form {found!r}, evaluation set {evaluation_set} has {expected!r}; "
            "results of different forms are never compared: evaluate with the set of its own channel"
        )


def read_split(evaluation_set: Output, split: str) -> list[Document]:
    """All documents of a split, sorted by genre and id.

    Raises:
        DataError: there are none, one occurs twice, or the text has another form.
    """
    if not evaluation_set.entries(f"{split}-*.parquet"):
        raise DataError(f"{evaluation_set}: has no split {split!r}; run `yanmo curate` with a {split} share")
    rows: list[dict[str, Any]] = []
    for path in evaluation_set.paths(f"{split}-*.parquet"):
        check_schema(path, "documents")
        columns = ["id", "genre", "source", "text", "title", "author"]
        chats = ["turns", "loss_spans"] if "turns" in pq.read_schema(path).names else []
        check_text_form(path, text_form(evaluation_set))
        rows += read_documents(path, [*columns, *chats]).to_pylist()
    found = [
        Document(
            **{name: row[name] for name in ("id", "genre", "source", "text", "title")},
            group=group,
            turns=turns_of(row) if "turns" in row else (),
        )
        for row, group in zip(rows, groups_of(rows), strict=True)
    ]
    if not any(d.characters for d in found):
        raise DataError(f"{evaluation_set}: split {split!r} is empty; run `yanmo curate` with more text")
    if len({d.id for d in found}) < len(found):
        raise DataError(f"{evaluation_set}: split {split!r} holds a document twice; run `yanmo curate` again")
    return sorted(found, key=lambda d: (genre_order(d.genre), d.id))


LARGEST_SHARE = 0.2
"""The largest share of a genre's documents that a group may have. So a genre has at least five groups."""


def groups_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The name of each document's group, by `genre`, `author` and `source`; empty if it has none.

    Ten poems of one author say less about poems than ten of ten authors: what one model gains on the first,
    it gains on the others too. Intervals therefore draw groups (common/bootstrap.py): all documents of one
    known author in a genre; where the author is unknown, all of one work. Curate's `source` names a work
    where none of its texts has an author (a book cut into chapters); a source with authors is a collection,
    whose anonymous texts have nothing in common.

    An author or work with more than a fifth of a genre is no group: another test split of this corpus would
    hold it as well, so it is part of what the genre is here, and its texts are drawn one by one. So a corpus
    of one author, or of one file without authors, keeps intervals over documents.
    """
    known = [row["author"].lower() not in UNKNOWN_AUTHORS for row in rows]
    collections = {row["source"] for row, is_known in zip(rows, known, strict=True) if is_known}
    names = [
        f"author {row['author']}"
        if is_known
        else f"work {row['source']}" * (row["source"] not in collections)
        for row, is_known in zip(rows, known, strict=True)
    ]
    members = Counter((row["genre"], name) for row, name in zip(rows, names, strict=True))
    sizes = Counter(row["genre"] for row in rows)
    return [
        name if 1 < members[row["genre"], name] <= LARGEST_SHARE * sizes[row["genre"]] else ""
        for row, name in zip(rows, names, strict=True)
    ]


def first_of_each_genre(documents: Sequence[Document], number: int) -> list[Document]:
    """Return at most `number` documents of each genre, in their order; all for 0.

    Sorted by id, which is a hash, the first are a fair draw, and a smaller budget's are among a larger one's.
    """
    groups = itertools.groupby(documents, key=lambda d: d.genre)
    return [d for _, group in groups for d in (itertools.islice(group, number) if number else group)]


@dataclass(frozen=True)
class TrainingDocument:
    """One training document."""

    id: str
    genre: str
    title: str
    text: str


def training_texts(documents: Output, most_characters: int) -> list[TrainingDocument]:
    """The distinct documents of the train split, in the order of the files, up to a number of characters."""
    sources, characters = [], 0
    for source in (each for batch in training_batches(documents) for each in batch):
        characters += len(source.text)
        if characters > most_characters:
            log.warning(
                "baselines see the first %s of the training text (--baseline-characters)",
                plural(characters - len(source.text), "character"),
            )
            break
        sources.append(source)
    if not sources:
        raise DataError(
            f"{documents}: its train split holds no text for the baselines; see `yanmo store show` of it"
        )
    return sources


def training_batches(documents: Output) -> Iterator[list[TrainingDocument]]:
    """The distinct documents of the train split, some thousand at a time; augmented copies are left out."""
    for path in _train_files(documents):
        for batch in pq.ParquetFile(path).iter_batches(_BATCH, columns=_COLUMNS):
            yield _documents_in(batch)


def distinct_batches(texts: Sequence[Output]) -> Iterator[list[TrainingDocument]]:
    """The distinct documents of the train splits of several texts, each once, some thousand at a time.

    A model that goes on from yesterday's has learned from yesterday's text too, and so on back: texts that
    are nearly the same. An id is the digest of what it names, so what an earlier text holds is not decoded
    and not searched again.
    """
    for first in texts[:1]:
        yield from training_batches(first)
    seen = np.zeros(0, np.int64)
    for before, text in itertools.pairwise(texts):
        seen = np.union1d(seen, _short_ids(before))
        yield from _unseen_batches(text, seen)


def _unseen_batches(documents: Output, seen: ShortIds) -> Iterator[list[TrainingDocument]]:
    for path in _train_files(documents):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            ids = _shortened(file.read_row_group(group, columns=["id"])["id"])
            is_new = ~np.isin(ids, seen)
            if is_new.any():
                table = file.read_row_group(group, columns=_COLUMNS).filter(pa.array(is_new))
                for batch in table.to_batches(_BATCH):
                    yield _documents_in(batch)


def _short_ids(documents: Output) -> ShortIds:
    files = [_shortened(pq.read_table(path, columns=["id"])["id"]) for path in _train_files(documents)]
    return np.concatenate([np.zeros(0, np.int64), *files])


def _shortened(ids: pa.ChunkedArray) -> ShortIds:
    """64 bits of each id: among 10 million documents beside 10 million others, one is taken for another in
    1 of 180,000 corpora."""
    return np.array([hash(each) for each in ids.to_pylist()], np.int64)


def _train_files(documents: Output) -> Iterator[Path]:
    for path in documents.paths("train-*.parquet"):
        check_schema(path, "documents")
        check_text_form(path, text_form(documents))
        yield path


def _documents_in(batch: pa.RecordBatch) -> list[TrainingDocument]:
    rows = [r for r in batch.to_pylist() if r.pop("parent_id") is None and r["text"]]
    return [TrainingDocument(**row) for row in rows]


def by_genre(sources: Iterable[TrainingDocument]) -> dict[str, list[str]]:
    """Genre -> texts, the genres in their usual order."""
    found: dict[str, list[str]] = {}
    for source in sources:
        found.setdefault(source.genre, []).append(source.text)
    return {genre: found[genre] for genre in sorted(found, key=genre_order)}


def read_confirmation(evaluation_set: Output, split: str) -> list[Document]:
    """The documents of the confirmation split; none unless the test split is scored and there is one."""
    if split != "test" or not evaluation_set.entries(f"{CONFIRM}-*.parquet"):
        return []
    return read_split(evaluation_set, CONFIRM)
