"""The lists of a channel's nights: a document for each month, and one of the newest nights.

No stage lists a bucket: whoever has something to say of a night puts its row into the month's document and
into the index, by compare-and-swap. Ten years are 120 documents of about 20 kB, and an index that does not
grow.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

from yanmo.nights.changing import Values, change, page_serial, read_document
from yanmo.nights.night import STATES, Row, newest_first
from yanmo.nights.places import CHANNELS, TOP, feed_name, is_of_nights, list_name, list_page
from yanmo.store.objects import ObjectStore

SCHEMA, CHANNELS_SCHEMA = "yanmo.nights/1", "yanmo.channels/1"
NEWEST = 40
"""Nights on the index and in the feed."""
MOST_A_MONTH = 2000
"""The newest nights of a month, which its page shows: a run every 20 minutes. Others keep their own pages."""
_MOST_MONTHS, _MOST_CHANNELS = 1200, 1000


def rows_in(values: Values | None) -> list[Row]:
    """The nights in a document, the newest first; what is no row is left out."""
    found: list[Row] = []
    listed = (values or {}).get("nights")
    for each in listed if isinstance(listed, list) else ():
        try:
            found.append(Row.of(each))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return newest_first(found)


def put_row(store: ObjectStore, channel: str, row: Row) -> tuple[Values, Values]:
    """Enter a night, in the place of what was said of it before; gives the month and the index.

    Raises:
        StorageError, DataError: as `change`.
    """
    return _put(store, channel, row.month, row.name, row)


def drop_row(store: ObjectStore, channel: str, row: Row) -> tuple[Values, Values]:
    """Take a night out of the lists: one that was called missed has begun after all."""
    return _put(store, channel, row.month, row.name, None)


def _put(store: ObjectStore, channel: str, month: str, name: str, row: Row | None) -> tuple[Values, Values]:
    def with_row(values: Values, most: int) -> Values:
        rows = [one for one in rows_in(values) if one.name != name] + ([row] if row else [])
        kept = newest_first(rows)[:most]
        return {**values, "channel": channel, "nights": [one.to_dict() for one in kept]}

    def above() -> int:
        said = months_in(read_index(store, channel)).get(month, {})
        return max(int(said.get("serial", 0)), page_serial(store, list_page(channel, month)))

    document = list_name(channel, month)
    of_month = change(store, document, SCHEMA, lambda v: with_row(v, MOST_A_MONTH), above)
    counted = {"serial": of_month["serial"], **_counts(rows_in(of_month))}

    def with_month(values: Values) -> Values:
        months = months_in(values)
        if counted["serial"] >= months.get(month, {}).get("serial", 0):
            months[month] = counted
        newest = sorted(months, reverse=True)[:_MOST_MONTHS]
        own = {"feed": values.get("feed") or uuid.uuid4().urn, "months": {m: months[m] for m in newest}}
        return {**with_row(values, NEWEST), **own}

    def above_all() -> int:
        return page_serial(store, list_page(channel), feed_name(channel))

    return of_month, change(store, list_name(channel), SCHEMA, with_month, above_all)


def months_in(values: Values | None) -> dict[str, Any]:
    """Month -> how many of its nights stand how, as the index counted them; what is no month is left out."""
    said = (values or {}).get("months")
    found = said if isinstance(said, dict) else {}
    return {month: counts for month, counts in found.items() if _is_counted(counts)}


def _is_counted(counts: Any) -> bool:
    return isinstance(counts, dict) and all(
        isinstance(counts.get(name), int) for name in ("serial", "nights")
    )


def _counts(rows: list[Row]) -> dict[str, Any]:
    counts = Counter(row.state for row in rows)
    return {"nights": len(rows), **{state: counts[state] for state in STATES if counts[state]}}


def read_index(store: ObjectStore, channel: str) -> Values | None:
    """The newest nights and the months; None for none. Raises DataError where damaged."""
    return read_document(store, list_name(channel), SCHEMA)


def read_month(store: ObjectStore, channel: str, month: str) -> Values | None:
    """The nights of a month; raises as `read_index`."""
    return read_document(store, list_name(channel, month), SCHEMA)


def add_channel(store: ObjectStore, channel: str) -> Values:
    """Let the list of channels name this one."""

    def with_channel(values: Values) -> Values:
        names = sorted({*channels_in(values), channel})[:_MOST_CHANNELS]
        return {**values, "channels": names}

    return change(store, CHANNELS, CHANNELS_SCHEMA, with_channel, lambda: page_serial(store, TOP))


def channels_in(values: dict[str, Any]) -> list[str]:
    """The channels that a list names; what is no channel's name is left out."""
    listed = values.get("channels")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    return [name for name in names if is_of_nights(list_page(name))]
