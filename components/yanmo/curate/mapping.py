"""Phase `map`: one source file to clean, normalized documents, and a tally of what was dropped and why.

The result is a committed output of its own per file and text options, so that a new file in a folder, another
split or a killed run does not normalize the old files again. `yanmo store gc` may drop it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from yanmo.common.records import DOCUMENTS, TEXT_FORM, document_id, write_parquet
from yanmo.common.store.commit import Attempt, Result
from yanmo.curate.filters import REASONS, Cleaned, Limits, clean, judge
from yanmo.curate.normalize import MARK, Normalized, normalize
from yanmo.curate.parsing import Fields, Malformed, RawDocument, parse
from yanmo.curate.pool import ordered_map
from yanmo.curate.reading import Batch, read_batches
from yanmo.curate.sources import Source
from yanmo.curate.tally import Tally

log = logging.getLogger(__name__)

REVISION = 1
"""Raised when the same file and options give other documents."""

SHOWN_MALFORMED = 20
"""Malformed lines that are named in the report; all are counted."""

_FEW_HAN = 4
"""With fewer Han characters a document is recognised by its whole text, or all of them would be copies."""

DIGEST_BYTES = 16

DOCUMENT_COLUMNS = ("id", "text", "genre", "labels", "title", "author", "source", "license")
"""What `map` knows of documents v1."""

MAPPED = pa.schema(
    [
        *(
            DOCUMENTS.field(n)
            for n in ("id", "text", "genre", "labels", "title", "author", "source", "license")
        ),
        pa.field("cluster", pa.binary(DIGEST_BYTES), nullable=False),
        pa.field("whole", pa.binary(DIGEST_BYTES), nullable=False),
        pa.field("characters", pa.int32(), nullable=False),
        pa.field("marks", pa.int32(), nullable=False),
    ],
    metadata={"yanmo.schema": "mapped", "yanmo.version": "1", "yanmo.text_form": TEXT_FORM},
)
"""cluster: digest of the Han characters, equal for copies. whole: digest of all fields, to order copies that
have one id. marks: punctuation marks."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Everything that decides what becomes of one record."""

    fields: Fields
    limits: Limits


@dataclass
class MapReport:
    """What happened to the records of a file, or of all files."""

    lines: int = 0
    """Records read, malformed ones included."""
    malformed: int = 0
    first_malformed: list[Malformed] = dataclasses.field(default_factory=list)
    tally: Tally = dataclasses.field(default_factory=Tally)
    """`read`, each filter's name, and `cleaned_*`."""

    def merge(self, other: MapReport) -> None:
        self.lines += other.lines
        self.malformed += other.malformed
        self.first_malformed = [*self.first_malformed, *other.first_malformed][:SHOWN_MALFORMED]
        self.tally.merge(other.tally)

    def to_json(self) -> dict[str, Any]:
        return {
            "lines": self.lines,
            "malformed": self.malformed,
            "first_malformed": [dataclasses.astuple(m) for m in self.first_malformed],
            **self.tally.to_json(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> MapReport:
        first = [Malformed(*m) for m in value["first_malformed"]]
        return cls(value["lines"], value["malformed"], first, Tally.from_json(value))


@dataclass(frozen=True, kw_only=True)
class _Task:
    batch: Batch
    options: TextOptions
    path: Path


def build_mapped(
    attempt: Attempt,
    *,
    source: Source,
    options: TextOptions,
    workers: int,
    batch_bytes: int,
    on_bytes: Callable[[int], None],
) -> Result:
    """Write the documents of `source` as `mapped-00000.parquet` ... and `report.json`."""
    report, rows = MapReport(), 0
    tasks = _tasks(source, options, batch_bytes, on_bytes, attempt)
    for number, (kept, part) in enumerate(ordered_map(map_batch, tasks, workers)):
        attempt.add(_file_name(number))
        rows += kept
        report.merge(part)
    attempt.write("report.json", json.dumps(report.to_json(), ensure_ascii=False, indent=1))
    return Result(counts={"documents": rows}, metadata={"text_form": TEXT_FORM, "source": source.name})


def _file_name(number: int) -> str:
    return f"mapped-{number:06d}.parquet"


def _tasks(
    source: Source, options: TextOptions, batch_bytes: int, on_bytes: Callable[[int], None], attempt: Attempt
) -> Iterator[_Task]:
    batches = read_batches(source, options.fields.columns, batch_bytes, on_bytes)
    for number, batch in enumerate(batches):
        yield _Task(batch=batch, options=options, path=attempt.path(_file_name(number)))


def map_batch(task: _Task) -> tuple[int, MapReport]:
    """Write the documents of one batch; how many, and what happened to the others."""
    table, report = documents_of(task.batch, task.options)
    write_parquet(table, task.path)
    return table.num_rows, report


def documents_of(batch: Batch, options: TextOptions) -> tuple[pa.Table, MapReport]:
    """The documents of one batch that pass the filters, as MAPPED, and what happened to all records."""
    documents, malformed = parse(batch, options.fields)
    cleaned = [clean(d.text) for d in documents]
    normalized = normalize([c.text for c in cleaned])
    verdicts = judge(cleaned, normalized, options.limits).tolist()
    ids = [document_id(d.source, d.title, t) for d, t in zip(documents, normalized.texts, strict=True)]
    report = MapReport(len(documents) + len(malformed), len(malformed), malformed[:SHOWN_MALFORMED])
    _count(report.tally, documents, cleaned, normalized, verdicts, ids)
    kept = [i for i, verdict in enumerate(verdicts) if verdict < 0]
    return _table(documents, normalized, ids, kept), report


def _count(
    tally: Tally,
    documents: list[RawDocument],
    cleaned: list[Cleaned],
    normalized: Normalized,
    verdicts: list[int],
    ids: list[str],
) -> None:
    cells: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    shown: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for i, characters in enumerate(normalized.characters.tolist()):
        names = ["read", *(f"cleaned_{change}" for change in cleaned[i].changes)]
        if verdicts[i] >= 0:
            names.append(REASONS[verdicts[i]])
            shown[names[-1]].append(_example(documents[i], ids[i], normalized.texts[i]))
        for name in names:
            cells[name, documents[i].genre] += 1
            sizes[name, documents[i].genre] += characters
    for (name, genre), number in cells.items():
        tally.add(name, genre, number, sizes[name, genre])
    for name, examples in shown.items():
        tally.show(name, examples)


def _example(document: RawDocument, id: str, text: str) -> dict[str, Any]:
    return {
        "id": id,
        "genre": document.genre,
        "title": document.title,
        "source": document.source,
        "text": text[:80],
    }


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES]


def cluster_digest(han: str, text: str) -> bytes:
    """What all copies of a document have in common: the digest of its Han characters."""
    return _digest(han if len(han) >= _FEW_HAN else text)


def _table(documents: list[RawDocument], normalized: Normalized, ids: list[str], kept: list[int]) -> pa.Table:
    chosen = [documents[i] for i in kept]
    texts = [normalized.texts[i] for i in kept]
    columns: dict[str, Any] = {
        "id": [ids[i] for i in kept],
        "text": texts,
        "cluster": [cluster_digest(normalized.han[i], normalized.texts[i]) for i in kept],
        "whole": [
            _digest("\0".join((ids[i], d.genre, d.author, d.license, repr(d.labels))))
            for i, d in zip(kept, chosen, strict=True)
        ],
        "characters": normalized.characters[kept],
        "marks": normalized.counts[kept, MARK],
    }
    for name in ("genre", "title", "author", "source", "license", "labels"):
        columns[name] = [getattr(d, name) for d in chosen]
    arrays = [pa.array(columns[f.name], type=f.type) for f in MAPPED]
    return pa.table(arrays, schema=MAPPED)
