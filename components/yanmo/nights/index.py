"""The newest runs of a channel: a document that every run enters itself into, and the page made of it.

No stage lists a bucket: whoever has something to say of a run puts its row into the index, by
compare-and-swap. Then the page is made; what a kill left behind is mended by the next writer.
"""

from __future__ import annotations

from yanmo.nights.changing import Values, change, page_serial, put_page, read_document
from yanmo.nights.night import Row, newest_first
from yanmo.nights.places import index_name, index_page
from yanmo.nights.record import row_of
from yanmo.store.objects import ObjectStore

SCHEMA = "yanmo.nights/1"
NEWEST = 400
"""Runs on the index, about 0.7 kB each in the document; older ones keep their records."""


def rows_in(values: Values | None) -> list[Row]:
    """The runs in a document, the newest first; what is no row is left out."""
    found: list[Row] = []
    listed = (values or {}).get("nights")
    for each in listed if isinstance(listed, list) else ():
        try:
            found.append(Row.of(each))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return newest_first(found)


def read_index(store: ObjectStore, channel: str) -> Values | None:
    """The document; None for none. Raises DataError where damaged."""
    return read_document(store, index_name(channel), SCHEMA)


def rows_shown(store: ObjectStore, channel: str) -> list[Row]:
    """The newest runs of a channel; raises as `read_index`."""
    return rows_in(read_index(store, channel))


def publish(store: ObjectStore, record: Values) -> Row:
    """Show a run as its record says; gives its row.

    Raises:
        StorageError, DataError: not all could be written; the same call goes on.
    """
    from yanmo.nights.pages.rendering import render_index

    row, channel = row_of(record), str(record["channel"])

    def with_row(values: Values) -> Values:
        kept = newest_first([*(one for one in rows_in(values) if one.name != row.name), row])[:NEWEST]
        return {**values, "channel": channel, "nights": [one.to_dict() for one in kept]}

    name = index_page(channel)
    values = change(store, index_name(channel), SCHEMA, with_row, lambda: page_serial(store, name))
    serial = int(values["serial"])
    put_page(store, name, serial, lambda: render_index(channel, rows_in(values), serial))
    return row
