"""A file that a person gives to be read whole, and JSON that somebody may have damaged (`json_value`).

A file is read up to a bound, whatever it is: a device never ends, and a pipe may never begin. Pipes are
read, as in `--config <(jq .train options.json)`. Bytes become text here, so that each file is refused alike.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import select
import stat
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError, in_words, naming

MIB = 1 << 20
MOST_OF_AN_OBJECT = 16 * MIB
"""Bytes of a JSON object, such as a tokenizer, at most."""
PIPE_SECONDS = 5.0
"""How long a pipe may stay silent before its first byte."""
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
_WIDE = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
"""UTF-32 first: its little-endian mark begins with that of UTF-16."""


def read_given(
    path: Path | str,
    expected: str,
    *,
    shown: str = "",
    most_bytes: int = MIB,
    wrong: type[ValueError] = DataError,
    pipe_seconds: float = PIPE_SECONDS,
) -> bytes:
    """Return the bytes of a file.

    Args:
        expected: what it should be, for the message: "a YAML file of options".
        shown: how a message calls it; the path by default.
        most_bytes: the most that such a file can have.
        wrong: the error to raise where it is not that.
        pipe_seconds: how long a pipe may stay silent before its first byte.

    Raises:
        FileNotFoundError: nothing is there; each caller knows best what was meant.
    """
    begin = f"{shown or path}: expected {expected}, found"
    try:
        data = read_bounded(path, most_bytes + 1, pipe_seconds)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise wrong(f"{begin} {_what(path, error)}") from error
    if len(data) > most_bytes:
        raise wrong(f"{begin} more than {most_bytes} bytes, the most that such a file can have")
    return data


def given_text(path: Path | str, expected: str, **how: Any) -> str:
    """Return the text of a file in UTF-8, with or without a byte order mark; else as `read_given`."""
    data = read_given(path, expected, **how)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{how.get('shown') or path}: expected {expected}, in UTF-8; found {_no_utf8(data, error)}"
        raise how.get("wrong", DataError)(where) from error


def given_json(path: Path | str, expected: str, **how: Any) -> Any:
    """Return the value in a JSON file; else as `read_given`."""
    text = given_text(path, expected, **how)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f"{how.get('shown') or path}: expected {expected}; it is not JSON: {in_words(error)}"
        raise how.get("wrong", DataError)(where) from error


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file that somebody else may have written.

    Raises:
        DataError: it holds none.
    """
    value = given_json(path, "a JSON object", most_bytes=MOST_OF_AN_OBJECT)
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {kind_of_json(value)}; copy it again")
    return value


def kind_of_json(value: Any) -> str:
    """Return a JSON value's kind, as a person calls it."""
    kinds = {dict: "an object", list: "an array", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def read_bounded(path: Path | str, most: int, pipe_seconds: float = PIPE_SECONDS) -> bytes:
    """Return the first `most` bytes of a file.

    Raises:
        OSError: there is none, it is a folder, or it cannot be read.
        ValueError: a NUL in its name, or a pipe that stays silent.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = stat.S_IFMT(os.fstat(file).st_mode)
        if mode == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, "a folder")
        if mode != stat.S_IFREG and not select.select([file], [], [], pipe_seconds)[0]:
            raise ValueError(f"a pipe or device that said nothing for {pipe_seconds:.0f} s")
        os.set_blocking(file, True)
        with os.fdopen(os.dup(file), "rb") as opened, naming(Path(path)):
            return opened.read(most)
    finally:
        os.close(file)


def _what(path: Path | str, error: OSError | ValueError) -> str:
    """Return what lies there, and what to do."""
    try:
        kind = _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "")
    except (OSError, ValueError):
        kind = ""
    if isinstance(error, PermissionError):
        return f"one that user {os.geteuid()} may not read: change its owner or mode"
    return f"{kind or in_words(error)}: look at the path"


def _no_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    """Return what the bytes are instead, as far as one can see, and how to mend it."""
    wide = next((name for mark, name in _WIDE if data.startswith(mark)), "")
    if wide:
        return f"{wide}; convert it by iconv -f {wide} -t UTF-8 OLD > NEW"
    return (
        f"byte 0x{data[error.start]:02x} at position {error.start}, which is not; convert it (from GB18030: "
        "iconv -f GB18030 -t UTF-8 OLD > NEW), or look whether it is the right file"
    )


def json_value(data: str | bytes, **how: Any) -> Any:
    """Return the value in `data`, as by `json.loads`.

    Raises:
        ValueError: it is no JSON, or nested more deeply than anything that is written here.
    """
    try:
        return json.loads(data, **how)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
