"""Rows of `.csv` and `.tsv` files, each as a record with the names of the first row.

A quote that is never closed would take all that follows into one cell. So a row that does not end within a
record's limit, or at the end of the file, is taken for its first line alone, without quotes, and reading goes
on with the next line.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Sequence

from yanmo.curate.sources.batch import Bad, Found
from yanmo.curate.sources.encodings import decode_record

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_OTHERS = "\t;|"
"""Delimiters of files that are called .csv all the same, as spreadsheets of other countries write them."""
_MOST_LINES = 10_000
"""Of a row; with more of them a quote was forgotten."""


def table_rows(
    form: str, chunks: Iterator[bytes], limit: int, *, strict: bool = True
) -> Iterator[tuple[int, list[str] | Bad]]:
    """Yield the line and the cells of each row that is not blank.

    Args:
        form: `csv` or `tsv`.
        chunks: text in UTF-8.
        limit: the most bytes that a row may have.
        strict: whether a row with wrong quotes is none; else its text is in some cell, maybe with rows below.
    """
    csv.field_size_limit(limit)
    lines = _Lines(chunks, limit)
    delimiter, is_known = _DELIMITERS[form], False
    while not lines.at_end:
        if not is_known:
            delimiter = _delimiter(lines.peek(), delimiter)
        first, cells = lines.number, lines.row(delimiter, strict)
        if isinstance(cells, Bad):
            yield first, cells
        elif any(cell.strip() for cell in cells):
            is_known = True
            yield first, cells


def table_records(form: str, chunks: Iterator[bytes], limit: int) -> Iterator[Found]:
    """Yield the rows below the first, which has the names, as records; arguments as of `table_rows`."""
    names: list[str] = []
    for line, cells in table_rows(form, chunks, limit):
        if isinstance(cells, Bad):
            yield Found(line, cells)
        elif not names:
            names = [cell.strip() for cell in cells]
        elif [cell.strip() for cell in cells] != names:  # else tables were put one behind the other
            yield Found(line, _record(names, cells))


def _delimiter(header: str, usual: str) -> str:
    if usual in header:
        return usual
    return max(_OTHERS, key=header.count) if any(other in header for other in _OTHERS) else usual


def _record(names: Sequence[str], cells: Sequence[str]) -> dict[str, str] | Bad:
    more = [cell for cell in cells[len(names) :] if cell.strip()]
    if more:
        return Bad(
            f"{len(cells)} cells, expected {len(names)} as in the first row ({', '.join(names[:10])}): a "
            "cell with a delimiter in it needs quotes around"
        )
    return {name: cell for name, cell in zip(names, cells, strict=False) if name}


class _Lines:
    """The lines of a file, of which some may be read again."""

    def __init__(self, chunks: Iterator[bytes], limit: int) -> None:
        self._chunks, self._limit = chunks, limit
        self._buffer = bytearray()
        self._waiting: deque[bytes] = deque()
        self._cut = 0
        """Bytes of a line without end that are not held."""
        self.number = 1
        """Of the next line."""

    @property
    def at_end(self) -> bool:
        return not self._waiting and not self._fill()

    def peek(self) -> str:
        """Return the next line."""
        return self._waiting[0].decode(errors="replace")

    def row(self, delimiter: str, strict: bool) -> list[str] | Bad:
        """Return the cells of the next row, which may go over several lines; none of a blank line."""
        taken: list[bytes] = []
        is_text = True
        try:
            cells = next(csv.reader(self._texts(taken), delimiter=delimiter, strict=strict))
        except UnicodeDecodeError as error:
            problem, is_text = f"not UTF-8: {error.reason}", False
        except csv.Error as error:
            problem = f"no row of a table: {error}"
            if len(taken) > 1 or "unexpected end" in str(error):
                problem = "a quote that is not closed"
        else:
            self.number += len(taken)
            return cells
        self._waiting.extendleft(reversed(taken[1:]))
        self.number += 1
        size = len(taken[0])
        if size > self._limit:
            size, self._cut = size + self._cut, 0
            return Bad.of(f"longer than {self._limit / (1 << 20):.3g} MiB", size)
        if not is_text:
            return Bad.of(problem, size)
        if delimiter == "\t":  # many tables of this kind know no quotes
            return decode_record(taken[0])[0].rstrip("\r\n").split("\t")
        return Bad.of(f"{problem}; a cell with quotes in it needs them doubled, and quotes around", size)

    def _texts(self, taken: list[bytes]) -> Iterator[str]:
        size = 0
        while size <= self._limit and len(taken) < _MOST_LINES and not self.at_end:
            line = self._waiting.popleft()
            taken.append(line)
            size += len(line)
            if len(line) > self._limit:
                raise csv.Error("a line without end")  # of which the rest is not here
            yield decode_record(line)[0]

    def _fill(self) -> bool:
        """Read on to the end of a line; whether there was one. Of a longer one `limit` bytes and one stay."""
        while b"\n" not in self._buffer:
            self._cut += len(self._buffer[self._limit + 1 :])
            del self._buffer[self._limit + 1 :]
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._buffer += chunk
        if not self._buffer:
            return False
        end = self._buffer.rfind(b"\n") + 1 or len(self._buffer)
        self._waiting.extend(bytes(self._buffer[:end]).splitlines(keepends=True))
        del self._buffer[:end]
        return True
