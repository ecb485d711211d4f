"""Finds the output that a person names: stage/key or its beginning, channel/pointer, a reference file."""

from __future__ import annotations

import json
from pathlib import Path

from yanmo.common.errors import DataError, UsageError, naming
from yanmo.store.manifest import MAX_REFERENCE_BYTES, Reference
from yanmo.store.objects import ObjectStore, is_name
from yanmo.store.output import SHORTEST_KEY, Output, find_by_digits, open_reference
from yanmo.store.pointers import open_named, pointer_name, read_pointer

_HEX = set("0123456789abcdef")
_EXPECTED = "expected stage/key, channel/pointer or a file holding a reference"


def find(store: ObjectStore, what: str) -> Output:
    """The output that `what` names.

    Raises:
        UsageError: it cannot name one, or names several.
        DataError: there is none, or its manifest is damaged.
    """
    if what.lstrip().startswith("{"):
        return open_reference(store, Reference.from_json(what, "WHAT"))
    path = Path(what)
    if len(what) < 1000 and "\0" not in what and path.is_file():
        return open_named(store, _from_file(path), str(path))
    first, second = _two_parts(what)
    try:
        pointer = read_pointer(store, first, second)
    except UsageError:
        pointer = None
    if pointer is not None:
        return open_named(store, pointer, pointer_name(first, second))
    return _by_key(store, first, second)


def _from_file(path: Path) -> Reference:
    with path.open("rb") as file, naming(path):
        return Reference.from_json(file.read(MAX_REFERENCE_BYTES + 1), str(path))


def _two_parts(what: str) -> tuple[str, str]:
    name = what.removeprefix("pointers/").removeprefix("cas/").removesuffix("/MANIFEST.json")
    first, _, second = name.removesuffix(".json").partition("/")
    if not first or not second or "/" in second or not is_name(f"{first}/{second}"):
        raise UsageError(f"{what[:200]!r}: {_EXPECTED}")
    return first, second


def _by_key(store: ObjectStore, stage: str, key: str) -> Output:
    where = f"{stage}/{key}"
    if not set(key) <= _HEX or len(key) < SHORTEST_KEY:
        raise DataError(
            f"{where}: {store.uri} has no such pointer, and no output either: a key has {SHORTEST_KEY} to 64 "
            "digits of 0-9a-f; `yanmo store ls` shows what there is"
        )
    found = find_by_digits(store, stage, key)
    if found is None:
        raise DataError(f"{where}: no such output in {store.uri}; `yanmo store ls` shows what there is")
    return found


def print_json(value: object) -> None:
    """One JSON document on stdout, for scripts."""
    print(json.dumps(value, ensure_ascii=False, indent=1))
