"""From one file of documents to the token and document files of the cache.

Each input file has its own output files, so that any number of processes writes the same bytes, and a changed
input file does not affect the output of others.
"""

from __future__ import annotations

import base64
import functools
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from yanmo.common.errors import DataError
from yanmo.common.freed_memory import trim_heap
from yanmo.formats.documents import document_batches
from yanmo.formats.token_cache import INDEX, id_type, write_index, write_tokens
from yanmo.tokenize.foreign import read_segmenter
from yanmo.tokenize.jieba_agreement import agreement_counts, sampled, thinned
from yanmo.tokenize.segmenter import Encoded, Marks, Segmenter, encode

Array = np.ndarray[Any, np.dtype[Any]]
FILE_BYTES = 1 << 28
"""Where a token file ends and the next begins (it may grow to 1 GiB for one huge document)."""
LESS = "fewer --workers or smaller document files"
"""What needs less memory."""
BATCH_DOCUMENTS = 1024
_JUDGED_FIRST = 16
_JUDGED_CHARACTERS = 1 << 17
"""Characters checked at the beginning of a document: `tokenizers` takes minutes for one of 100 MB."""
COLUMNS = ("id", "text", "genre", "split", "loss_spans", "turns")


@dataclass(frozen=True, kw_only=True)
class FileTask:
    """One input file to tokenize, as a process receives it."""

    documents: Path
    split: str
    tokenizer: Path
    """The tokenizer.json."""
    tokenizer_digest: str
    marks: Marks
    out: Path
    """Folder to write to."""
    judged: int
    """One document in so many is checked, and the first of each file; 0 checks none."""
    sentences: int
    """Sentences on which agreement with jieba is measured."""
    user: bytes
    """Lines of the user dictionaries that jieba is to load."""
    file_bytes: int = FILE_BYTES


@dataclass(kw_only=True)
class Done:
    """The result of one input file. All but the files goes into the manifest of its part, so nothing is here
    in which two tries may differ, such as seconds."""

    files: list[tuple[Path, Path]] = field(default_factory=list)
    """Token file and document file, in order."""
    documents: Counter[str] = field(default_factory=Counter)
    """By genre; so are the next two."""
    tokens: Counter[str] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)
    byte_tokens: int = 0
    """Tokens that are bytes of characters without a piece."""
    bytes: int = 0
    """UTF-8 bytes of the texts."""
    judged: int = 0
    jieba: Counter[str] = field(default_factory=Counter)
    """Counts of `agreement_counts`."""
    used: Array = field(default_factory=lambda: np.zeros(0, bool))
    """bool (vocabulary): ids that occur."""

    def to_metadata(self) -> dict[str, Any]:
        """Return all but the files, for a manifest."""
        packed = base64.b64encode(zlib.compress(np.packbits(self.used).tobytes())).decode()
        kept = {name: value for name, value in vars(self).items() if name not in ("files", "used")}
        kept |= {name: dict(value) for name, value in kept.items() if isinstance(value, Counter)}
        return kept | {"used": packed, "vocab_size": len(self.used)}

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any]) -> Done:
        """Return the value that `to_metadata` was called on, without the files."""
        values = {name: metadata[name] for name in metadata.keys() & vars(cls()).keys()}
        for name in ("documents", "tokens", "characters", "jieba"):
            values[name] = Counter(values[name])
        bits = np.frombuffer(zlib.decompress(base64.b64decode(metadata["used"])), np.uint8)
        return cls(**values | {"used": np.unpackbits(bits, count=metadata["vocab_size"]).astype(bool)})


@dataclass
class _Pending:
    """Documents that are encoded but not yet written."""

    ids: list[Array] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    num_tokens: int = 0


def tokenize_file(job: FileTask, segmenter: Segmenter | None = None) -> Done:
    """Encode the documents of one file and write its part of the cache.

    Raises:
        DataError: the file is damaged or holds documents of another split.
        RuntimeError: the kernel and `tokenizers` disagree.
    """
    segmenter = segmenter or _segmenter(job.tokenizer)
    stored = id_type(segmenter.vocab_size)
    done, pending = Done(used=np.zeros(segmenter.vocab_size, bool)), _Pending()
    sentences: list[str] = []
    for batch in document_batches(job.documents, COLUMNS, BATCH_DOCUMENTS):
        _check_split(job, batch)
        encoded = encode(segmenter, batch, job.marks)
        ids, offsets, characters = encoded.ids, encoded.offsets, encoded.characters
        _judge(job, done, segmenter, batch, encoded)
        _count(done, segmenter, batch, ids, offsets, characters)
        sentences += sampled(batch["text"]) if job.sentences else []
        if pending.num_tokens and (pending.num_tokens + len(ids)) * stored.itemsize > job.file_bytes:
            _write(job, done, segmenter, pending)
            pending = _Pending()
        spans = loss_spans(segmenter, batch["loss_spans"], ids, offsets, encoded.loss_spans)
        columns = [
            batch["id"],
            batch["genre"],
            batch["split"],
            pa.array(offsets[:-1] + pending.num_tokens, pa.int64()),
            pa.array(np.diff(offsets), pa.int32()),
            pa.array(characters, pa.int32()),
            pa.array(spans, INDEX.field("loss_spans").type),
        ]
        pending.tables.append(pa.Table.from_arrays(columns, schema=INDEX))
        pending.ids.append(ids.astype(stored))
        pending.num_tokens += len(ids)
    _write(job, done, segmenter, pending)
    if sentences:
        done.jieba = agreement_counts(segmenter, thinned(sentences, job.sentences), job.user)
    return done


@functools.lru_cache(maxsize=1)
def _segmenter(path: Path) -> Segmenter:
    """Return the segmenter of a `tokenizer.json`, read once in a worker process."""
    return read_segmenter(path)


def loss_spans(
    segmenter: Segmenter,
    column: pa.Array,
    ids: Array,
    offsets: Array,
    chats: Mapping[int, list[list[int]]] = MappingProxyType({}),
) -> list[list[list[int]] | None]:
    """Return the spans of each document that carry loss, in tokens; None where all do.

    A token carries loss when one of its characters does; `<|eos|>` when the text's last character does.

    Args:
        column: [begin, end) in characters of the text, per document; null for all.
        chats: row -> the spans of a chat, whose tokens are not just those of its text.
    """
    result: list[list[list[int]] | None] = [None] * len(column)
    for row, known in chats.items():
        result[row] = known
    for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist():
        if row in chats:
            continue
        tokens = ids[offsets[row] + 1 : offsets[row + 1] - 1]
        width = segmenter.widths[tokens]
        end = width.cumsum()
        start = end - np.maximum(width, 1)
        spans: list[list[int]] = []
        for a, b in column[row].as_py():
            first = max(int(np.searchsorted(end, a, "right")) + 1, spans[-1][1] if spans else 0)
            last = int(np.searchsorted(start, b, "left")) + 1
            if len(end) and b >= end[-1]:
                last += 1  # <|eos|>
            if first < last:
                spans.append([first, last])
        result[row] = spans
    return result


def _check_split(job: FileTask, batch: pa.RecordBatch) -> None:
    splits = batch["split"].unique().to_pylist()
    if splits != [job.split]:
        raise DataError(f"{job.documents}: expected documents of split {job.split}, found {splits}")


def _judge(job: FileTask, done: Done, segmenter: Segmenter, batch: pa.RecordBatch, encoded: Encoded) -> None:
    ids, offsets = encoded.ids, encoded.offsets
    if not job.judged:
        return
    seen = sum(done.documents.values())
    rows = {*range(-seen % job.judged, len(batch), job.judged), *range(seen, min(_JUDGED_FIRST, len(batch)))}
    for row in sorted(rows):
        tokens = ids[offsets[row] + 1 : offsets[row + 1] - 1].tolist()
        for text, run in encoded.runs.get(row) or [(batch["text"][row].as_py(), tokens)]:
            _judge_text(segmenter, text, run)
        done.judged += 1


def _judge_text(segmenter: Segmenter, text: str, ids: list[int]) -> None:
    """Check the ids of a text; for a huge one those of its beginning, encoded separately."""
    if len(text) > _JUDGED_CHARACTERS:
        text = text[:_JUDGED_CHARACTERS]
        ids = segmenter.encode(pa.array([text], pa.string()))[0].tolist()
    segmenter.judge(text, ids)


def _count(
    done: Done,
    segmenter: Segmenter,
    batch: pa.RecordBatch,
    ids: Array,
    offsets: Array,
    characters: Array,
) -> None:
    genres = batch["genre"].dictionary_encode()
    names, codes = genres.dictionary.to_pylist(), genres.indices.to_numpy()
    amounts = ((done.documents, None), (done.tokens, np.diff(offsets)), (done.characters, characters))
    for counter, weights in amounts:
        sums = np.bincount(codes, weights, len(names))  # doubles: exact below 2^53
        counter.update(dict(zip(names, map(int, sums), strict=True)))
    occurs = np.bincount(ids, minlength=len(done.used))
    done.byte_tokens += int(occurs[segmenter.byte0 : segmenter.byte0 + 256].sum())
    done.bytes += batch["text"].nbytes
    done.used |= occurs > 0


def _write(job: FileTask, done: Done, segmenter: Segmenter, pending: _Pending) -> None:
    number = len(done.files)
    tokens, index = (job.out / f"{kind}-{number:05d}.parquet" for kind in ("tokens", "documents"))
    table = pa.concat_tables(pending.tables) if pending.tables else INDEX.empty_table()
    size, digest = segmenter.vocab_size, job.tokenizer_digest
    trim_heap()  # what batches took: the writer needs four times the bytes of the ids
    try:
        write_tokens(tokens, pending.ids, vocab_size=size, tokenizer=digest, split=job.split)
    except ValueError as error:
        raise DataError(f"{job.documents}: {error}; split its documents into smaller ones") from error
    write_index(index, table, vocab_size=size, tokenizer=digest)
    done.files.append((tokens, index))
