"""A batch: what one process normalizes at a time. Records of other formats become JSON lines, so that all of
them are parsed, and forgiven, alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from yanmo.curate.sources.listing import Source

MAX_RECORD_BYTES = 64 << 20
"""A longer line or block is skipped and counted as malformed."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some consecutive records of one file."""

    source: Source
    first: int
    """Line number (row number in Parquet) of the first record, from 1."""
    data: Any
    """Bytes of whole lines or blocks, or a record batch."""
    too_long: tuple[int, ...] = ()
    """Numbers of lines that were skipped because they are longer than `limit` bytes."""
    skipped: int = 0
    """Bytes of these."""
    limit: int = MAX_RECORD_BYTES
    layout: str = ""
    """What a document is in a text file; one of LAYOUTS but auto."""
    encoding: str = "utf-8"
    """Encoding of the file; `data` is UTF-8."""
    numbers: tuple[int, ...] = ()
    """Line numbers of the lines in `data` where they are made from records that have more or fewer."""
    names: tuple[str, ...] = ()
    """All columns of its file, where a record shows only those that were read."""
    nothing: str = ""
    """Why there is no document in the file, of which this is the only batch."""
    bad: tuple[tuple[int, Bad], ...] = ()
    """Line numbers of what is no record, and why."""

    @property
    def size(self) -> int:
        """Return the bytes of its data."""
        return self.data.nbytes if self.source.form == "parquet" else len(self.data)


class Found(NamedTuple):
    """One record of a file."""

    line: int
    """Where it begins, from 1."""
    value: Any
    """What JSON can say, or `Bad`."""


class Bad(str):
    """Why there is no record."""

    bytes = 0
    """What could not be read."""
    is_torn = False
    """Whether the file breaks off there: nobody knows how much is missing."""

    @classmethod
    def of(cls, why: str, size: int, *, is_torn: bool = False) -> Bad:
        """Return it with what is known of it."""
        bad = cls(why)
        bad.bytes, bad.is_torn = size, is_torn
        return bad


class Nothing(str):
    """Why there is no record in a whole file."""


def as_batches(source: Source, records: Iterable[Found], batch_bytes: int, limit: int) -> Iterator[Batch]:
    """Batches of about `batch_bytes`; a record of more than `limit` bytes is left out by its number."""
    lines: list[bytes] = []
    numbers: list[int] = []
    too_long: list[int] = []
    bad: list[tuple[int, Bad]] = []
    skipped = 0

    def taken() -> Batch:
        batch = Batch(
            source=source,
            first=numbers[0] if numbers else 1,
            data=b"\n".join(lines),
            numbers=tuple(numbers),
            too_long=tuple(too_long),
            skipped=skipped,
            bad=tuple(bad),
        )
        for some in (lines, numbers, too_long, bad):
            some.clear()
        return batch

    size = 0
    for line, value in records:
        if isinstance(value, Nothing):
            yield Batch(source=source, first=line, data=b"", nothing=str(value))
        elif isinstance(value, Bad):
            bad.append((line, value))
        elif len(data := _packed(value)) > limit:
            too_long.append(line)
            skipped += len(data)
        else:
            lines.append(data)
            numbers.append(line)
            size += len(data)
        if size >= batch_bytes:
            yield taken()
            size = skipped = 0
    if lines or too_long or bad:
        yield taken()


def _packed(value: Any) -> bytes:
    """Return a value as a line of JSON; half of a character stays an escape, refused when parsed."""
    try:
        return orjson.dumps(value)
    except TypeError:  # half of a character, or a number of more than 64 bits
        return json.dumps(value).encode()
