"""Whether what is said of nights can be read: for `yanmo store verify`."""

from __future__ import annotations

from yanmo.common.errors import DataError
from yanmo.nights.changing import read_document
from yanmo.nights.lists import CHANNELS_SCHEMA, rows_in
from yanmo.nights.lists import SCHEMA as LIST
from yanmo.nights.places import CHANNELS, page_name
from yanmo.nights.record import SCHEMA as NIGHT
from yanmo.nights.record import checked, row_of
from yanmo.store.objects import ObjectStore


def fault_of(store: ObjectStore, name: str) -> str | None:
    """What is wrong with an object below nights/, in words; None where nothing is."""
    if not name.endswith(".json"):
        return None
    is_record = name.count("/") == 3  # a channel may be called runs
    schema = NIGHT if is_record else CHANNELS_SCHEMA if name == CHANNELS else LIST
    where, channel = f"{store.uri}/{name}", name.split("/")[1]
    try:
        values = read_document(store, name, schema)
        if values is None or name == CHANNELS:
            return None
        rows = [row_of(checked(values, where))] if is_record else rows_in(values)
    except DataError as error:
        return str(error)
    listed = values.get("nights")
    if not is_record and (not isinstance(listed, list) or len(rows) < len(listed)):
        return f"{where}: holds what is no night; restore it, or delete it and run `yanmo nights rebuild`"
    lost = [row.name for row in rows if store.stat(page_name(channel, row)) is None]
    return f"{where}: the page of {lost[0]} is gone; run `yanmo nights rebuild`" if lost else None
