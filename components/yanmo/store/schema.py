"""What a manifest and a reference may contain: checked whole before anybody believes a word of them.

A store is shared, so a document in it may be cut off, written by another version, or hostile. Whatever the
bytes, parsing ends in a value of the right types or in a `ValueError` that says where it is wrong; sizes,
numbers of files, lengths and depth are capped, so that a document cannot eat the memory of its reader.

Alternative not taken: pydantic or jsonschema. The types here are few, and both images stay free of another
compiled dependency. Cost: 1.5 times that of `json.loads`; 0.2 to 0.35 s of CPU for a manifest of 100,000
files (18 MB).
"""

from __future__ import annotations

import datetime
import json
import math
import re
import sys
from collections.abc import Callable
from typing import Any

from yanmo.common.given_file import kind_of_json
from yanmo.store.objects import MAX_DOCUMENT_BYTES, is_name

MAX_REFERENCE_BYTES = 4096
MAX_FILES = 125_000
MAX_INPUTS = 20_000
MAX_TEXT = 65_536
"""Characters of one string (a list of source URIs is the longest)."""
MAX_DEPTH = 20
MAX_VALUES = 1_000_000
"""Scalars in the counts, metadata and options of one manifest."""
MAX_CONTAINERS = 400_000
MAX_COMMAS = 1_500_000
"""Marks in the bytes of a document, counted before it is parsed, as small values take 30 to 100 times their
bytes. 125,000 files have 125,000 braces and 500,000 commas; a million values have as many commas."""
MAX_INTEGER = 1 << 63
MAX_FILE_BYTES = 5 << 40
"""S3's largest object."""

_HEX = re.compile(r"[0-9a-f]{64}\Z")
_STAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
_FILE_FIELDS = frozenset({"path", "bytes", "sha256", "role"})
Check = Callable[[Any, str], None]


class OtherSchema(ValueError):
    """A document that another version of Yanmo wrote: it is good, and not for this version to judge."""


def utc_now() -> str:
    """This second as records write it: UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def parse(data: str | bytes, schema: str, limit: int) -> dict[str, Any]:
    """The JSON object in `data`, which is of `schema`.

    Args:
        limit: bytes (characters of a text) that it may have.

    Raises:
        OtherSchema: another version wrote it.
        ValueError: too long, too deep, not JSON, not an object, or of no version of `schema`.
    """
    if len(data) > limit:
        raise ValueError(f"{len(data)} bytes, expected at most {limit}")
    values = load(data)
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, found {kind_of_json(values)}")
    if values.get("schema") != schema:
        raise _other_schema(values.get("schema"), schema)
    return values


def load(data: str | bytes) -> Any:
    """The JSON value in `data`, which `ObjectStore.read` has capped; its memory is capped as well.

    Raises:
        ValueError: too many values, too deep, or not JSON.
    """
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if text.count(b"[") + text.count(b"{") > MAX_CONTAINERS or text.count(b",") > MAX_COMMAS:
        raise ValueError(f"over {MAX_CONTAINERS} lists and objects or {MAX_COMMAS} values")
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None


def _other_schema(found: Any, schema: str) -> ValueError:
    family, _, number = schema.rpartition("/")
    theirs, _, digits = found.rpartition("/") if isinstance(found, str) else ("", "", "")
    if theirs == family and digits.isascii() and digits.isdigit() and int(digits) != int(number):
        return OtherSchema(
            f"schema {found[:100]!r} is of another version of Yanmo, this one reads {schema!r} alone: use "
            "that version here, or another store (nothing is damaged)"
        )
    return ValueError(f"schema {str(found)[:100]!r}, expected {schema!r}")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def check_reference(values: Any, where: str = "reference", schema: str = "yanmo.reference/1") -> None:
    """Raise ValueError unless `values` is a reference whose names belong together."""
    _fields(values, where, _REFERENCE)
    if values["schema"] != schema:
        raise ValueError(f"{where}: schema {values['schema'][:100]!r}, expected schema {schema}")
    expected = f"cas/{values['stage']}/{values['key']}/MANIFEST.json"
    if values["manifest_uri"] != expected:
        raise ValueError(f"{where}: manifest_uri is {values['manifest_uri'][:200]!r}, expected {expected!r}")


def check_manifest(values: dict[str, Any]) -> None:
    """Raise ValueError unless `values` are the fields of a manifest."""
    _fields(values, "manifest", _MANIFEST)


def _fields(values: Any, where: str, checks: dict[str, Check]) -> None:
    """A mapping with exactly the fields of `checks`, each good."""
    if not isinstance(values, dict):
        raise ValueError(f"{where}: expected an object, found {kind_of_json(values)}")
    unknown = sorted(str(name)[:50] for name in values.keys() - checks.keys())
    if unknown:
        raise ValueError(f"{where}: unknown field {', '.join(unknown[:5])}; written by a later version?")
    for name, check in checks.items():
        if name not in values:
            raise ValueError(f"{where}: lacks {name}")
        check(values[name], f"{where}: {name}")


def _matching(pattern: re.Pattern[str], what: str) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or not pattern.match(value):
            raise ValueError(f"{where}: expected {what}, found {_shown(value)}")

    return check


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"{where}: expected a text of at most {MAX_TEXT} characters, found {_shown(value)}")
    _writable(value, where)


def _writable(text: str, where: str) -> None:
    """JSON can hold half a character (`\\ud800`); no digest is made of it, and no file."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where}: half a character in {_shown(text)}") from None


def _integer(value: Any, where: str) -> None:
    if type(value) is not int or not 0 <= value < MAX_INTEGER:
        raise ValueError(f"{where}: expected an integer from 0, found {_shown(value)}")


def _files(value: Any, where: str) -> None:
    if not isinstance(value, list) or len(value) > MAX_FILES:
        raise ValueError(f"{where}: expected a list of at most {MAX_FILES} files")
    seen = set()
    for entry in value:
        if not isinstance(entry, dict) or entry.keys() != _FILE_FIELDS:
            raise ValueError(f"{where}: expected {', '.join(sorted(_FILE_FIELDS))}, found {_shown(entry)}")
        path, size = entry["path"], entry["bytes"]
        if not isinstance(path, str) or len(path) > 600 or not is_name(path):
            raise ValueError(f"{where}: refused object name {_shown(path)}")
        if type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
            raise ValueError(f"{where}: {path}: bytes is {_shown(size)}")
        if not isinstance(entry["sha256"], str) or not _HEX.match(entry["sha256"]):
            raise ValueError(f"{where}: {path}: sha256 is {_shown(entry['sha256'])}")
        if entry["role"] not in ("content", "record"):
            raise ValueError(f"{where}: {path}: role is {_shown(entry['role'])}")
        seen.add(path)
    if len(seen) < len(value):
        raise ValueError(f"{where}: a path is listed twice")


def _mapping(value: Any, where: str) -> None:
    """Free values: JSON of limited depth, number and length."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object, found {_shown(value)}")
    waiting: list[tuple[Any, int]] = [(value, 0)]
    total = 0
    while waiting:
        found, depth = waiting.pop()
        total += 1
        if depth > MAX_DEPTH or total > MAX_VALUES:
            raise ValueError(f"{where}: over {MAX_DEPTH} levels or {MAX_VALUES} values")
        if isinstance(found, dict):
            waiting += [(inner, depth + 1) for inner in found.values()]
            waiting += [(name, depth + 1) for name in found if len(name) > MAX_TEXT or not name.isascii()]
        elif isinstance(found, list):
            waiting += [(inner, depth + 1) for inner in found]
        elif isinstance(found, str):
            _text(found, where)
        elif isinstance(found, float) and not math.isfinite(found):
            raise ValueError(f"{where}: a number beyond {sys.float_info.max:.0e}")


def _inputs(value: Any, where: str) -> None:
    _mapping(value, where)
    if len(value) > MAX_INPUTS:
        raise ValueError(f"{where}: over {MAX_INPUTS}")
    for name, given in value.items():
        if isinstance(given, dict) and "manifest_uri" in given:
            check_reference(given, f"{where}: {name[:100]}")
        elif given is not None:  # raw files; curate adds their names
            if not isinstance(given, dict) or not isinstance(given.get("content_digest"), str):
                raise ValueError(f"{where}: {name[:100]}: expected a reference or a content_digest")
            _HEX_DIGEST(given["content_digest"], f"{where}: {name[:100]}: content_digest")


def _references(value: Any, where: str) -> None:
    _mapping(value, where)
    if len(value) > MAX_INPUTS:
        raise ValueError(f"{where}: over {MAX_INPUTS}")
    for name, given in value.items():
        check_reference(given, f"{where}: {name[:100]}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


_HEX_DIGEST = _matching(_HEX, "64 hexadecimal digits")
_STAGE_NAME = _matching(_STAGE, "a stage's name")
_REFERENCE: dict[str, Check] = {
    "schema": _text,
    "stage": _STAGE_NAME,
    "key": _HEX_DIGEST,
    "manifest_uri": _text,
    "manifest_sha256": _HEX_DIGEST,
    "content_digest": _HEX_DIGEST,
}
_MANIFEST: dict[str, Check] = {
    "schema": _text,
    "stage": _STAGE_NAME,
    "key": _HEX_DIGEST,
    "revision": _integer,
    "attempt": _matching(_PART, "an attempt's id"),
    "files": _files,
    "counts": _mapping,
    "metadata": _mapping,
    "options": _mapping,
    "execution": _mapping,
    "inputs": _inputs,
    "references": _references,
    "run_id": _text,
    "created_at": _text,
    "content_digest": _HEX_DIGEST,
}
assert MAX_DOCUMENT_BYTES >= 250 * MAX_FILES  # a manifest of that many files can be read at all
