"""Documents that several writers change, and pages made of them: the newest one stays.

A document is changed by compare-and-swap and counts its changes (`serial`). A page says of which change it
was made, and is replaced by a later one only: a writer that was slow, or that comes back after another, can
not bring an older page back. A page that a kill left behind is mended by the next writer of the channel.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable
from typing import Any

from yanmo.common.errors import DataError
from yanmo.store.objects import MAX_DOCUMENT_BYTES, ObjectStore, amend
from yanmo.store.schema import OtherSchema, parse

_MARK = re.compile(rb"yanmo-serial[^0-9<>]{1,20}([0-9]{1,15})")
"""In a page: `<meta name="yanmo-serial" content="17">`."""
_HEAD = 2048
Values = dict[str, Any]


def read_document(store: ObjectStore, name: str, schema: str) -> Values | None:
    """The document; None where there is none.

    Raises:
        DataError: it is damaged, or of another version.
    """
    try:
        data, _ = store.read(name)
    except FileNotFoundError:
        return None
    return parse_document(data, schema, f"{store.uri}/{name}")


def parse_document(data: bytes, schema: str, where: str) -> Values:
    """The document that was read from `where`; raises as `read_document`."""
    try:
        values = parse(data, schema, MAX_DOCUMENT_BYTES)
        if not isinstance(values.get("serial"), int):
            raise ValueError("it lacks its serial")
        return values
    except OtherSchema as error:
        raise DataError(f"{where}: {error}") from error
    except ValueError as error:
        raise DataError(
            f"{where}: damaged: {error}; restore it, or delete it: the next run begins it again"
        ) from error


def change(
    store: ObjectStore,
    name: str,
    schema: str,
    change: Callable[[Values], Values],
    above: Callable[[], int] = lambda: 0,
) -> Values:
    """The document after `change`, which is given what is there now (empty at first); written if it differs.

    Args:
        change: gives the new values; may be called again with newer ones.
        above: gives the serial after which a document begins that is not there: pages that were made of one
            that was lost say a later change than its first.

    Raises:
        StorageError: it changed under every try.
        DataError: what is there is damaged.
    """
    values: Values = {}

    def changed(data: bytes | None) -> bytes | None:
        nonlocal values
        before = {} if data is None else parse_document(data, schema, f"{store.uri}/{name}")
        first = above() if data is None else 0
        values = change(dict(before)) | {"schema": schema, "serial": before.get("serial", first)}
        if values == before:
            return None
        values["serial"] += 1
        return json.dumps(values, ensure_ascii=False, indent=1).encode("utf-8") + b"\n"

    amend(store, name, changed)
    return values


def put_page(
    store: ObjectStore, name: str, serial: int, make: Callable[[], str], *, again: bool = False
) -> None:
    """Let the page be that of change `serial`, unless it is that of a later one.

    Args:
        make: gives the text, which says its serial; called only where the page is written, and once.
        again: write it also where it is of this change already.
    """
    page = functools.cache(make)

    def newer(data: bytes | None) -> bytes | None:
        there = serial_of(data or b"")
        if there > serial or (there == serial and not again):
            return None
        return page().encode("utf-8", "replace")

    amend(store, name, newer)


def page_serial(store: ObjectStore, *names: str) -> int:
    """The latest change of which one of these pages is; 0 where there is none, or none that says so."""
    latest = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            latest = max(latest, serial_of(store.read(name)[0]))
    return latest


def serial_of(page: bytes) -> int:
    """Of which change a page is; -1 where it does not say."""
    found = _MARK.search(page[:_HEAD])
    return int(found[1]) if found else -1
