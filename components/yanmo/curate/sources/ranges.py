"""Large files of lines or blocks in ranges of bytes, so that a worker reads its own range and nothing else.

Range n holds the records that begin between n and n + 1 times `size` bytes: from the end of the first
boundary there to the end of the first one behind it. That depends on the file alone. Packed files, tables and
arrays of JSON have no such places, nor has text in an encoding that is converted first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import BinaryIO

from yanmo.curate.sources.batch import Batch
from yanmo.curate.sources.batches import Reading, layout_of
from yanmo.curate.sources.encodings import SAMPLE_BYTES, as_utf8, file_encoding
from yanmo.curate.sources.json_files import are_json_lines
from yanmo.curate.sources.listing import Source
from yanmo.curate.sources.raw_files import check_seen, open_file, reading
from yanmo.curate.sources.text_layouts import likely_layout

_LEAST_BYTES = 1 << 16
_COUNTED_TOGETHER = 16
_STEP_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A file and how it is cut."""

    source: Source
    layout: str
    boundaries: tuple[bytes, ...]
    size: int
    limit: int
    """The most bytes of a record."""

    @classmethod
    def of(cls, source: Source, how: Reading, batch_bytes: int) -> Cut | None:
        """Return how a file is cut; None where it is small, or has no places to cut it at."""
        size = max(batch_bytes, _LEAST_BYTES)
        if source.compression or source.bytes <= size or source.form not in ("jsonl", "json", "txt", "md"):
            return None
        layout = layout_of(source, how.layout)
        with opened(source) as file:
            head = file.read(SAMPLE_BYTES)
        found = file_encoding(source.shown, head, source.settings.get("encoding", how.encoding))
        if found.encoding != "utf-8" or (source.form == "json" and not are_json_lines(head)):
            return None
        if layout == "auto":
            layout = likely_layout(head)
        if layout not in ("line", "block"):
            return None
        boundaries = (b"\n",) if layout == "line" else (b"\n\n", b"\n\r\n")
        limit = how.max_record_bytes
        return cls(source=source, layout=layout, boundaries=boundaries, size=size, limit=limit)

    @property
    def count(self) -> int:
        """Return the number of ranges."""
        return -(-self.source.bytes // self.size)

    def segments(self) -> Iterator[Segment]:
        """Yield the tasks of `lines_in`."""
        for start in range(0, self.count, _COUNTED_TOGETHER):
            yield Segment(self, start, min(start + _COUNTED_TOGETHER, self.count))

    def ranges(self, lines: list[int]) -> Iterator[Range]:
        """Yield the ranges.

        Args:
            lines: line breaks in each.
        """
        for number, before in enumerate(accumulate(lines[:-1], initial=0)):
            yield Range(self, number, before)


@dataclass(frozen=True)
class Segment:
    """Some ranges whose lines are counted together."""

    cut: Cut
    start: int
    stop: int


def lines_in(task: Segment) -> list[int]:
    """Return the line breaks in each range of a segment, at its multiples of bytes."""
    with opened(task.cut.source) as file:
        file.seek(task.start * task.cut.size)
        return [file.read(task.cut.size).count(b"\n") for _ in range(task.start, task.stop)]


@dataclass(frozen=True)
class Range:
    """One range of a file."""

    cut: Cut
    number: int
    lines_before: int
    """Line breaks before its first multiple of bytes."""

    @property
    def bytes(self) -> int:
        """Return its size, about."""
        return min(self.cut.size, self.cut.source.bytes - self.number * self.cut.size)

    def read(self) -> Batch | None:
        """Return its records; None where none begins in it.

        Raises:
            DataError: the file cannot be read. StorageError: it has changed.
        """
        cut, low = self.cut, self.number * self.cut.size
        before = min(low, max(map(len, cut.boundaries)))
        with opened(cut.source) as file:
            file.seek(low - before)
            data = bytearray(file.read(before + self.bytes))
            start, behind = _first_end(data, cut.boundaries, before) if low else 0, len(data)
            if not 0 <= start < behind:
                return None
            end = _read_on(file, data, cut)
            skipped = _rest_of(file, data, cut) if end < 0 else 0
        first = 1 + self.lines_before + data.count(b"\n", before, start) - data.count(b"\n", start, before)
        too_long: tuple[int, ...] = ()
        if end < 0:  # the last record has no end within the limit
            ends = [at + len(b) for b in cut.boundaries if (at := data.rfind(b, start, behind)) >= 0]
            end = max([start, *ends])
            too_long = (first + data.count(b"\n", start, end),)
            skipped += len(data) - end
        text = b"".join(as_utf8(iter((bytes(data[start:end]),)), "utf-8"))
        return Batch(
            source=cut.source,
            first=first,
            data=text,
            too_long=too_long,
            skipped=skipped,
            limit=cut.limit,
            layout=cut.layout,
        )


def _read_on(file: BinaryIO, data: bytearray, cut: Cut) -> int:
    """Read to the end of the record that goes on behind `data`; return that, -1 where it is too far away."""
    behind = len(data)
    searched = behind
    while True:
        if (end := _first_end(data, cut.boundaries, searched)) >= 0:
            return end
        if len(data) - behind > cut.limit:
            return -1
        searched = len(data)
        more = file.read(_STEP_BYTES)
        if not more:
            return len(data)
        data += more


def _rest_of(file: BinaryIO, data: bytearray, cut: Cut) -> int:
    """Return how many bytes the record at the end of `data` goes on for."""
    before = max(map(len, cut.boundaries))
    size, tail = 0, data[-before:]
    while more := file.read(_STEP_BYTES):
        tail += more
        if (end := _first_end(tail, cut.boundaries, before)) >= 0:
            return size + end - before
        size += len(more)
        del tail[:-before]
    return size


def _first_end(data: bytearray, boundaries: tuple[bytes, ...], place: int) -> int:
    """Return the end of the first boundary that ends at `place` or behind; -1 where there is none."""
    ends = [at + len(b) for b in boundaries if (at := data.find(b, max(place - len(b), 0))) >= 0]
    return min(ends, default=-1)


@contextmanager
def opened(source: Source) -> Iterator[BinaryIO]:
    """The file's stream; it is the same file before and after.

    Raises:
        DataError: it cannot be read. StorageError: it has changed.
    """
    check_seen(source.uri)
    source.check_unchanged()
    with open_file(source.uri, _STEP_BYTES) as file, reading(source.shown):
        yield file
    source.check_unchanged()
