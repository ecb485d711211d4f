"""Documents that a channel keeps beside its pointers: one JSON object each, changed by compare-and-swap,
sealed with the sha256 of their own bytes.

    pointers/<channel>/records/<name>.json

Whoever may write pointers/<channel>/ may change them.

Cost: one small object read, and written where something changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from yanmo.common.errors import DataError, wrong_in
from yanmo.common.names import name_problems
from yanmo.store.manifest import sealed, unsealed
from yanmo.store.objects import MAX_DOCUMENT_BYTES, ObjectStore, amend
from yanmo.store.schema import OtherSchema, parse

DOCUMENTS = ("licenses", "takedown")
"""Those of this version; tools refuse others, which a later one may have written."""
T = TypeVar("T")
_NAME = re.compile(r"pointers/[^/]+/records/([^/]+)\.json\Z")


def document_name(channel: str, name: str) -> str:
    """Where the document `name` of a channel lies.

    Raises:
        DataError: the channel's name cannot be part of an object's name.
    """
    for problem in name_problems("--channel", channel):
        raise DataError(problem)
    return f"pointers/{channel}/records/{name}.json"


def kind_of_document(name: str) -> str:
    """Which document an object of the store is, by its name; "" where it is none."""
    found = _NAME.match(name)
    return found[1] if found else ""


def parsed(data: bytes, schema: str, where: str, make: Callable[[dict[str, Any]], T]) -> T:
    """What `make` makes of the document that was read from `where`.

    Raises:
        DataError: it is damaged, or another version of Yanmo wrote it.
    """
    try:
        return make(parse(unsealed(data), schema, MAX_DOCUMENT_BYTES))
    except OtherSchema as error:
        raise DataError(f"{where}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{where}: damaged: {wrong_in(error)}; restore it") from error


def read_document(
    store: ObjectStore, name: str, schema: str, make: Callable[[dict[str, Any]], T]
) -> T | None:
    """The document; None where there is none. Raises as `parsed`."""
    try:
        data, _ = store.read(name)
    except FileNotFoundError:
        return None
    return parsed(data, schema, f"{store.uri}/{name}", make)


def change_document(
    store: ObjectStore,
    name: str,
    schema: str,
    make: Callable[[dict[str, Any]], T],
    change: Callable[[T | None], dict[str, Any] | None],
) -> None:
    """Replace the document by what `change` makes of it; None leaves it as it is.

    Args:
        change: called again where somebody else changed the document meanwhile.

    Raises:
        StorageError: it changed under every try.
    """

    def changed(data: bytes | None) -> bytes | None:
        found = None if data is None else parsed(data, schema, f"{store.uri}/{name}", make)
        values = change(found)
        if values is None:
            return None
        return sealed(json.dumps({"schema": schema, **values}, ensure_ascii=False, indent=1).encode())

    amend(store, name, changed)
