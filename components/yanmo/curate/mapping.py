"""Phase `map`: from one source file to clean, normalized documents, with counts of what was dropped and why.

Each file has a committed output of its own per set of text options, so that after a new file in a folder,
another split or a killed run the other files are not normalized again. `yanmo store gc` may remove it.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.curate.duplicates import signing
from yanmo.curate.map_report import SHOWN_MALFORMED, Judged, MapReport
from yanmo.curate.mapped_texts import comparable
from yanmo.curate.sources.batches import Batch, read_batches
from yanmo.curate.sources.listing import Source
from yanmo.curate.sources.parsing import PLAIN, RawDocument, parse, without_genre
from yanmo.curate.sources.ranges import Cut, Range, lines_in
from yanmo.curate.sources.raw_files import check_seen
from yanmo.curate.text.cleaning import clean_and_normalize, columns_of
from yanmo.curate.text.filters import judge
from yanmo.curate.text.normalize import LACUNA, MARK
from yanmo.curate.text.record_rules import RecordRules
from yanmo.engine.maps import add_made, is_remote, ordered_map
from yanmo.formats.decisions import DECISIONS, MALFORMED, decided
from yanmo.formats.records import DOCUMENTS, DOCUMENTS_WITH_TURNS, TEXT_FORM, document_id, write_parquet
from yanmo.store.commit import Attempt, Result

log = logging.getLogger(__name__)

REVISION = 10
"""Raised when the same file and options give other documents or keys, or files of other names."""

_FEW = 4
"""A document of fewer such characters is compared by its whole text; otherwise all such would be copies."""

DOCUMENT_COLUMNS = ("id", "text", "genre", "labels", "title", "author", "source", "license")
"""Columns of documents v1 that `map` fills."""

CHAT_COLUMNS = ("loss_spans", "turns")
"""Further columns of a mapped file that holds a chat."""

NAMES, DROPPED = "mapped-*.parquet", "dropped-*.parquet"
"""Of files of documents, as MAPPED, and of what the filters dropped and malformed lines, as DECISIONS."""

MAPPED = pa.schema(
    [*map(DOCUMENTS.field, ("text", "labels", "title")), *signing.SHARED],
    metadata={"yanmo.schema": "mapped", "yanmo.version": "1", "yanmo.text_form": TEXT_FORM},
)


class Documents(NamedTuple):
    """The documents of a batch that pass the filters, all in one order."""

    table: pa.Table
    """As MAPPED, with CHAT_COLUMNS where one of them is a chat."""
    compared: list[str]
    """What is compared of each."""
    lacunae: npt.NDArray[np.int64]
    """How many marks of lost characters each has."""


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Text to map: one range of a large file, or batches that were read here, or else whole files."""

    options: RecordRules
    number: int = 0
    """Of its first mapped file."""
    out: Path
    """The folder to write to."""
    part: Range | None = None
    batches: Sequence[tuple[Batch, RecordRules]] = ()
    """One of a large file, several of small ones."""
    sources: Sequence[Source] = ()
    batch_bytes: int = 0


@dataclass(frozen=True)
class _Mapped:
    """What a task wrote, and what happened to its records."""

    rows: dict[str, int]
    """Name of a file -> texts in it."""
    report: MapReport


def build_mapped(
    attempt: Attempt,
    *,
    sources: Sequence[Source],
    options: RecordRules,
    workers: int,
    batch_bytes: int,
    on_bytes: Callable[[int], None],
) -> Result:
    """Write the documents of `sources`, what is dropped of them, and `report.json`."""
    report, rows = MapReport(), 0
    tasks = _tasks(attempt.directory, sources, options, workers, batch_bytes, on_bytes, report)
    less = "fewer --workers or a smaller --batch-bytes"
    with ordered_map(map_task, tasks, workers, less) as results:
        for done in results:
            add_made(attempt, list(done.rows))
            rows += sum(done.rows.values())
            report.merge(done.report)
    if not report.files:  # a part without a record is a part of the corpus as well
        empty = MAPPED.with_metadata({**MAPPED.metadata, b"yanmo.text_form": options.form}).empty_table()
        nothing = Documents(empty, [], np.zeros(0, np.int64))
        attempt.add_all(list(_write(attempt.directory, 0, nothing, DECISIONS.empty_table())))
    attempt.write("report.json", json.dumps(report.to_json(), ensure_ascii=False, indent=1))
    return Result(counts={"documents": rows}, metadata={"text_form": options.form, "source": sources[0].name})


def _tasks(
    out: Path,
    sources: Sequence[Source],
    options: RecordRules,
    workers: int,
    batch_bytes: int,
    on_bytes: Callable[[int], None],
    report: MapReport,
) -> Iterator[_Task]:
    """Yield the tasks of a part: ranges of a file that can be cut, else batches that are read here, or, on
    other machines, all of it."""
    cut = Cut.of(sources[0], options.reading, batch_bytes) if len(sources) == 1 else None
    if cut:
        with ordered_map(lines_in, cut.segments(), workers) as counted:
            lines = [number for some in counted for number in some]
        report.files["utf-8"] += 1
        is_known = False
        for part in cut.ranges(lines):
            if not is_known:
                options, is_known = _with_unknown_genre(options, part.read())
            yield _Task(options=options, number=part.number, out=out, part=part)
            on_bytes(part.bytes)
    elif is_remote():
        yield _Task(options=options, out=out, sources=sources, batch_bytes=batch_bytes)
        on_bytes(sum(source.bytes for source in sources))
    else:
        batches = (
            batch for one in sources for batch in batches_of(one, options, batch_bytes, on_bytes, report)
        )
        for number, some in enumerate(_together(batches, batch_bytes)):
            yield _Task(options=options, number=number, out=out, batches=some)


def _with_unknown_genre(options: RecordRules, batch: Batch | None) -> tuple[RecordRules, bool]:
    """Return the rules for a file, which may know no genres, and whether a batch has the document that says
    so: its first."""
    unknown = without_genre(batch, options.fields) if batch else None
    fields = dataclasses.replace(options.fields, genre_unknown=bool(unknown))
    return dataclasses.replace(options, fields=fields), unknown is not None


def batches_of(
    source: Source,
    options: RecordRules,
    batch_bytes: int,
    on_bytes: Callable[[int], None],
    report: MapReport,
) -> Iterator[tuple[Batch, RecordRules]]:
    """Yield the batches of a file, each with the rules that hold for the file."""
    number, is_known = -1, False
    batches = read_batches(source, _columns(source, options), batch_bytes, on_bytes, options.reading)
    for number, batch in enumerate(batches):
        if batch.nothing:
            report.empty.append(f"{source.name} ({batch.nothing})")
            return
        if not is_known:
            options, is_known = _with_unknown_genre(options, batch)
        if not number:
            report.files[source.form if source.form == "parquet" else batch.encoding] += 1
            if batch.encoding != "utf-8":
                log.debug("%s is in %s", source.shown, batch.encoding)
        yield batch, options
    if number < 0:
        report.empty.append(source.name)


def _together(
    batches: Iterable[tuple[Batch, RecordRules]], batch_bytes: int
) -> Iterator[list[tuple[Batch, RecordRules]]]:
    """Small files' batches put together up to about `batch_bytes`; those of one file stay apart."""
    found: list[tuple[Batch, RecordRules]] = []
    size = 0
    for batch, rules in batches:
        if found and (found[-1][0].source is batch.source or size + batch.size > batch_bytes):
            yield found
            found, size = [], 0
        found.append((batch, rules))
        size += batch.size
    if found:
        yield found


def _columns(source: Source, options: RecordRules) -> list[str]:
    return options.fields.of_source(source.settings).columns


def map_task(task: _Task) -> _Mapped:
    """Write the documents of a task, and what is dropped of them.

    Python looks for cycles whenever some objects more are alive. A batch's records hold none, and looking
    through all of them, again and again, takes a fifth of the time.
    """
    gc.disable()
    try:
        return _map(task)
    finally:
        gc.enable()


def _map(task: _Task) -> _Mapped:
    rows, report = dict[str, int](), MapReport()
    for number, batches in enumerate(_batches(task, report), task.number):
        documents, part, dropped = documents_of(batches)
        rows |= _write(task.out, number, documents, dropped)
        report.merge(part)
    return _Mapped(rows, report)


def _write(folder: Path, number: int, documents: Documents, dropped: pa.Table) -> dict[str, int]:
    """Write the files of a batch; returns the name of each, and how many texts are in it."""
    mapped, signed, left_out = (
        name.replace("*", f"{number:06d}") for name in (NAMES, signing.NAMES, DROPPED)
    )
    write_parquet(documents.table, folder / mapped, level=1)
    signing.write_signed(*documents, folder / signed)
    rows = {mapped: documents.table.num_rows, signed: 0}
    if dropped.num_rows or not number:
        write_parquet(dropped, folder / left_out)
        rows[left_out] = 0
    return rows


def _batches(task: _Task, report: MapReport) -> Iterator[Sequence[tuple[Batch, RecordRules]]]:
    """Yield what is normalized together of a task."""
    if task.part:
        if batch := task.part.read():
            yield [(batch, task.options)]
    elif task.sources:
        for source in task.sources:
            check_seen(source.uri)
        read = (
            batches_of(one, task.options, task.batch_bytes, lambda _: None, report) for one in task.sources
        )
        yield from _together(itertools.chain.from_iterable(read), task.batch_bytes)
    else:
        yield task.batches


def documents_of(batches: Sequence[tuple[Batch, RecordRules]]) -> tuple[Documents, MapReport, pa.Table]:
    """Return the documents that pass the filters, what happened to all records, and those that are
    dropped, as DECISIONS.

    Args:
        batches: of at least one file, with rules that differ in fields only.
    """
    options, report = batches[0][1], MapReport()
    documents: list[RawDocument] = []
    dropped: list[dict[str, Any]] = []
    for batch, rules in batches:
        found, malformed = parse(batch, rules.fields)
        plain = sum(d.genre == PLAIN for d in found) if rules.fields.genre_unknown else 0
        lines, first = len(found) + len(malformed), malformed[:SHOWN_MALFORMED]
        chats = Counter(document.layout for document in found if document.layout)
        unread = batch.skipped + sum(one.unread for one in malformed)
        size = batch.size + batch.skipped + sum(why.bytes for _, why in batch.bad)
        report.merge(MapReport(lines, len(malformed), size, unread, first, plain=plain, chats=chats))
        documents += found
        dropped += [{"path": m.file, "line": m.line, "reason": MALFORMED, "note": m.why} for m in malformed]
    genres = [d.genre for d in documents]
    cleaned, normalized = clean_and_normalize(documents, options.cleaning, options.steps)
    judged = Judged(
        documents=documents,
        ids=[document_id(d.source, d.title, t) for d, t in zip(documents, normalized.texts, strict=True)],
        cleaned=cleaned,
        normalized=normalized,
        verdicts=judge(cleaned, normalized, genres, options.rules),
    )
    judged.count(report.tally)
    kept = []
    for i, reason in enumerate(judged.verdicts.reasons):
        if not reason:
            kept.append(i)
            continue
        row = judged.example(i, measured=True)
        row |= {"line": documents[i].line, "path": documents[i].path, "changes": judged.changes[i]}
        row |= {"characters": int(normalized.characters[i]), "reason": reason}
        dropped.append({name: row[name] for name in DECISIONS.names if name in row})
    return _documents(judged, kept, options.form), report, decided(dropped)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[: signing.DIGEST_BYTES]


def cluster_digest(compared: str, text: str) -> bytes:
    """Return the digest of what is compared of a document, which is the same for all exact copies."""
    return _digest(compared if len(compared) >= _FEW else text)


def _documents(judged: Judged, kept: list[int], form: str) -> Documents:
    ids, normalized = judged.ids, judged.normalized
    chosen = [judged.documents[i] for i in kept]
    texts = [normalized.texts[i] for i in kept]
    compared = comparable(texts, form)
    columns: dict[str, Any] = {
        "id": [ids[i] for i in kept],
        "text": texts,
        "cluster": [cluster_digest(*both) for both in zip(compared, texts, strict=True)],
        "whole": [
            _digest("\0".join((ids[i], d.genre, d.author, d.license, repr(d.labels), *map(repr, d.turns))))
            for i, d in zip(kept, chosen, strict=True)
        ],
        "characters": normalized.characters[kept],
        "marks": normalized.counts[kept, MARK],
        "changes": [judged.changes[i] for i in kept],
    }
    for name in ("path", "line", "genre", "title", "author", "source", "license", "labels"):
        columns[name] = [getattr(d, name) for d in chosen]
    schema = MAPPED.with_metadata({**MAPPED.metadata, b"yanmo.text_form": form})
    if any(d.turns for d in chosen):
        columns |= columns_of(chosen)
        for name in CHAT_COLUMNS:
            schema = schema.append(DOCUMENTS_WITH_TURNS.field(name))
    table = pa.table([pa.array(columns[f.name], type=f.type) for f in schema], schema=schema)
    return Documents(table, compared, normalized.counts[kept, LACUNA])
