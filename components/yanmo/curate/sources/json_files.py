"""Records of `.json` files: the elements of an array, wherever in the file it lies.

    [{"text": ...}, ...]                                      an array of records, read as a stream
    ["...", ...]                                              of texts
    {"version": 1, "data": [{"text": ...}]}                   records under a field, however deep
    {"title": "...", "content": [{"paragraphs": [...]}]}      what stands above a record holds for it

A file with one object on each line is read as JSON lines, in which a broken one spoils no other. Of an array
what comes before the place where it is no JSON is read; where a file breaks off, the run ends.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from yanmo.curate.sources.batch import Bad, Found, Nothing
from yanmo.curate.sources.chat_layouts import PARAGRAPHS, TEXTS, Pair, layout_of_chat

_MOST_CHARACTERS = 256 << 20
"""Of one value that is held in memory, such as an object with all records in it."""
_DEEPEST = 16
_MOST_OTHERS = 10_000
"""Of a file that has no record so far."""
_MOST_DIGITS = 300
_WHITE = " \t\r\n,"
_CUT_WORD = re.compile(r"[-+.\w]{0,6}")
"""What is left of a text that ends in a number, in true, false or null, in an escape, or behind a mark."""


def are_json_lines(head: bytes) -> bool:
    """Return whether a file that begins so has one value on each line."""
    first, _, rest = head.lstrip().partition(b"\n")
    if not first.startswith(b"{") or not rest.strip():
        return False
    try:
        return isinstance(orjson.loads(first), dict)
    except orjson.JSONDecodeError:
        return False


def json_records(
    chunks: Iterator[bytes], columns: Sequence[str], pair: Pair | None = None
) -> Iterator[Found]:
    """Yield the records of a file.

    One in which nothing is a record, such as `package.json`, holds none; elsewhere what is none is malformed.

    Args:
        chunks: text in UTF-8.
        columns: names of fields, the text's first.
        pair: fields with a chat's question and answer, beside the usual ones.
    """
    values, others = _Values(chunks), list[Found]()
    names: dict[str, None] = {}
    has_records, problem = False, ""
    try:
        for line, value, is_element in values:
            found = [_as_record(one, columns) for one in _below(value, columns, pair)]
            if found and not has_records:
                has_records = True
                yield from others
            elif not found and isinstance(value, Mapping):
                names |= dict.fromkeys(value)
            if not found and is_element:  # refused when it is parsed, by what it has
                other = Found(line, dict.fromkeys(value) if isinstance(value, Mapping) else value)
                if has_records:
                    yield other
                elif len(others) < _MOST_OTHERS:
                    others.append(other)
            yield from (Found(line, one) for one in found)
    except ValueError as error:
        problem = str(error)
    if problem and (has_records or values.is_torn):  # of a torn object nobody knows what it held
        why = f"no JSON from here on, so the rest is not read: {problem}"
        yield Found(values.line, Bad.of(why, values.rest(), is_torn=values.is_torn))
    elif not has_records and (problem or names or others):
        why = f"no field {columns[0]!r}, only {', '.join(list(names)[:10])}" if names else "no object in it"
        yield Found(values.line, Nothing(f"no JSON in line {values.line}: {problem}" if problem else why))


def _as_record(value: Any, columns: Sequence[str]) -> Any:
    return {columns[0]: value} if isinstance(value, str) else value


def _below(value: Any, columns: Sequence[str], pair: Pair | None) -> Iterator[Any]:
    """Yield the records in a value: itself, or those in its lists and objects, with the fields above."""
    if isinstance(value, str) or _is_record(value, columns, pair):
        yield value
        return
    waiting: list[tuple[Any, dict[str, Any], int]] = [(value, {}, 0)]
    while waiting:
        one, above, depth = waiting.pop()
        if isinstance(one, Mapping):
            if _is_record(one, columns, pair):
                yield {**above, **one}
                continue
            above = {**above, **{n: v for n, v in one.items() if n in columns and isinstance(v, (str, int))}}
            inside = list(one.values())
        else:
            inside = one if isinstance(one, list) else []
        if depth < _DEEPEST:
            waiting += (
                (each, above, depth + 1) for each in reversed(inside) if isinstance(each, (dict, list))
            )


def _is_record(value: Any, columns: Sequence[str], pair: Pair | None) -> bool:
    if not isinstance(value, Mapping):
        return False
    has_text = any(value.get(name) is not None for name in (columns[0], *PARAGRAPHS))
    if has_text or layout_of_chat(value, pair):
        return True
    lists = (inner for inner in value.values() if isinstance(inner, list) and inner)
    if any(_is_record(inner[0], columns, pair) for inner in lists):  # `content` of a book is its preface
        return False
    return any(isinstance(value.get(name), str) for name in TEXTS)


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) < _MOST_DIGITS else None


class _Values:
    """The values of a text: each element of an array at its top, and each value beside one."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._json = json.JSONDecoder(parse_constant=lambda name: None, parse_int=_number)
        self._text, self._at = "", 0
        self._is_at_end = False
        self.line = 1
        """Where the next value begins."""
        self.is_torn = False
        """Whether the text ends before it should; known once iteration has failed."""

    def __iter__(self) -> Iterator[tuple[int, Any, bool]]:
        """Line, value, and whether it is an element of an array."""
        is_inside = False
        while self._skip():
            if self._text[self._at] == "[" and not is_inside:
                is_inside, self._at = True, self._at + 1
            elif self._text[self._at] == "]" and is_inside:
                is_inside, self._at = False, self._at + 1
            else:
                line, value = self.line, self._value()
                yield line, value, is_inside
        if is_inside:
            self.is_torn = True
            raise ValueError("the array is not closed")

    def rest(self) -> int:
        """Read to the end; return how many bytes were no values."""
        left = len(self._text[self._at :].encode(errors="surrogateescape"))
        return left + sum(map(len, self._chunks))

    def _skip(self) -> bool:
        """Go to the next character that says something; whether there is one."""
        while True:
            start = self._at
            while self._at < len(self._text) and self._text[self._at] in _WHITE:
                self._at += 1
            self.line += self._text.count("\n", start, self._at)
            if self._at < len(self._text):
                return True
            if not self._read():
                return False

    def _value(self) -> Any:
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except RecursionError:
                raise ValueError("nested too deeply") from None
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > _MOST_CHARACTERS:
                    raise ValueError(f"more than {_MOST_CHARACTERS} characters in one value") from error
                left = self._text[error.pos :].strip()
                if not self._read():
                    is_at_end = _CUT_WORD.fullmatch(left) is not None
                    self.is_torn = is_at_end or error.msg.startswith("Unterminated string")
                    raise ValueError(error.msg) from error
                continue
            if end == len(self._text) and self._read():
                continue  # a number may go on
            self.line += self._text.count("\n", self._at, end)
            self._at = end
            return value

    def _read(self) -> bool:
        """Read as much again as is waiting; whether there was something."""
        parts, size, most = [self._text[self._at :]], 0, len(self._text) - self._at
        while not self._is_at_end and (not size or size < most):
            chunk = next(self._chunks, None)
            self._is_at_end = chunk is None
            parts.append(self._decoder.decode(chunk or b"", final=self._is_at_end))
            size += len(parts[-1])
        self._text, self._at = "".join(parts), 0
        return size > 0
