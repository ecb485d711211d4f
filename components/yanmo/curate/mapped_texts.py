"""What of a mapped text is compared with others: copies, and text shared with what is held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.chinese.text_runs import Runs, compared, is_by_characters
from yanmo.curate.text.normalize import normalize
from yanmo.engine.maps import ordered_map
from yanmo.formats.records import TEXT_FORM

Ints = npt.NDArray[np.signedinteger[Any]]


def read_texts(path: Path, rows: npt.NDArray[np.int32]) -> list[str]:
    """Return what is compared of the texts of some rows of a mapped file."""
    column = pq.read_table(path, columns=["text"], partitioning=None)["text"]
    return comparable(column.take(pa.array(rows)).to_pylist(), form_of_file(path))


@dataclass(frozen=True, kw_only=True)
class _RowsOf:
    """Some rows of a mapped file."""

    mapped: Path
    rows: Ints
    columns: tuple[str, ...]


def mapped_rows(
    paths: Sequence[Path], file: Ints, row: Ints, columns: Sequence[str], workers: int
) -> pa.Table:
    """Return row `row[i]` of file `paths[file[i]]`, for each i in order.

    Each file is read once, by a worker; only its chosen rows are kept. What a file has no column of is null;
    a column that none of them has is left out.
    """
    order = np.argsort(file, kind="stable")
    files, starts = np.unique(file[order], return_index=True)
    tasks = (
        _RowsOf(mapped=paths[number], rows=row[of_file], columns=tuple(columns))
        for number, of_file in zip(files, np.split(order, starts[1:]), strict=True)
    )
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    with ordered_map(rows_of_file, tasks, workers) as found:
        return pa.concat_tables(found, promote_options="default").take(pa.array(inverse))


def rows_of_file(task: _RowsOf) -> pa.Table:
    """Return the rows, with those of the columns that the file has."""
    names = [name for name in pq.read_schema(task.mapped).names if name in task.columns]
    return pq.read_table(task.mapped, columns=names, partitioning=None).take(pa.array(task.rows))


def form_of_file(path: Path) -> str:
    """Return the text form of a mapped file."""
    metadata: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    return metadata.get(b"yanmo.text_form", TEXT_FORM.encode()).decode()


def comparable(texts: Sequence[str], form: str) -> list[str]:
    """Return the Han characters (classical-1) of classical texts, modern texts as they read.

    Technical pages differ in names, numbers and code: `tiup dm` and `tiup cluster`, GB18030 and GBK.
    """
    if is_by_characters(form) and form != TEXT_FORM:  # a form made of classical-1 by options
        texts = normalize(texts).texts
    return compared(texts, form)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What is compared of documents that are held out, or may be."""

    texts: list[str]
    answers: list[list[str]]
    """Of each text that is a chat its answers, which the model is charged for."""
    is_chat: list[bool]

    COLUMNS = ("text", "loss_spans")

    @classmethod
    def of(cls, table: pa.Table, form: str) -> Compared:
        """Return what is compared of a table with COLUMNS; without `loss_spans` where none is a chat."""
        has_chats = "loss_spans" in table.column_names
        whole = table["text"].to_pylist()
        spans = table["loss_spans"].to_pylist() if has_chats else [None] * len(whole)
        answer_texts = [
            text[slice(*span)] for text, of in zip(whole, spans, strict=True) for span in of or ()
        ]
        answers = iter(comparable(answer_texts, form))
        return cls(
            texts=comparable(whole, form),
            answers=[list(islice(answers, len(of or ()))) for of in spans],
            is_chat=[span is not None for span in spans],
        )

    @property
    def chats(self) -> list[str]:
        """The texts that are chats."""
        return [text for text, is_chat in zip(self.texts, self.is_chat, strict=True) if is_chat]

    def charged(self, length: int) -> Runs:
        """Return the runs of `length` units of plain texts and of the answers of chats."""
        plain = [text for text, is_chat in zip(self.texts, self.is_chat, strict=True) if not is_chat]
        return Runs.of([*plain, *chain.from_iterable(self.answers)], length)

    def some(self, rows: Sequence[int]) -> Compared:
        """Return the texts at `rows`."""
        return Compared(
            texts=[self.texts[i] for i in rows],
            answers=[self.answers[i] for i in rows],
            is_chat=[self.is_chat[i] for i in rows],
        )
