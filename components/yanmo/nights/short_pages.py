"""Pages of nights long past, each replaced by a short one of about 2 kB under the same name.

A page with a verdict has about 100 kB, and most of it is what the verdict's own report says for as long as
the store keeps that. Index, months, feed and chat lead to the short page as they led to the whole one.

The night's record says first, by compare-and-swap, that its page is short, and of which change; the page of
that change follows. So whoever says more of the night later (a person who decides, a stage that is run again)
makes a later change, and their page takes the place of the short one and not the reverse. A kill between the
two leaves a mark and a whole page: the next `gc` or `yanmo nights rebuild` goes on.
"""

from __future__ import annotations

from yanmo.nights.changing import Values, change, serial_of
from yanmo.nights.places import page_name
from yanmo.nights.record import SCHEMA, row_of
from yanmo.store.objects import ObjectStore, amend
from yanmo.store.schema import utc_now

MOST_BYTES = 9_000
"""A larger page is a whole one: what a listing tells, so that no page is read for it."""
_SHORT = "short"


class _Meanwhile(Exception):
    """Somebody has said more of the night since it was looked at."""


def is_short(record: Values) -> bool:
    """Whether a night's page is a short one, as of the newest change of its record."""
    mark = record.get(_SHORT)
    return isinstance(mark, dict) and mark.get("serial") == record["serial"]


def shortened_at(record: Values) -> str:
    """When its page became short; "" where it is none."""
    return str(record[_SHORT].get("at", "?")) if is_short(record) else ""


def is_lost(record: Values) -> bool:
    """Whether it is short because the whole one was lost."""
    return is_short(record) and record[_SHORT].get("lost") is True


def marked(record: Values, *, lost: bool = False) -> Values:
    """The record as it will be once its page is short."""
    if is_short(record):
        return record
    serial = int(record["serial"]) + 1
    return {**record, "serial": serial, _SHORT: {"serial": serial, "at": utc_now(), "lost": lost}}


def short_page(record: Values) -> str:
    """The page of a record that is marked.

    Raises:
        ValueError, KeyError, TypeError: the record is damaged.
    """
    from yanmo.nights.pages.rendering import short_page

    return short_page(record, row_of(record), shortened_at(record), is_lost(record))


def shorten(store: ObjectStore, name: str, serial: int, *, lost: bool = False) -> bool:
    """Replace the page of a night by a short one; whether it was done.

    False where somebody has said more of the night meanwhile, or has taken it back: its page is theirs.

    Args:
        name: of its record.
        serial: of the record when this was decided.
        lost: whether the page was lost, and a short one is to take its place.

    Raises:
        StorageError, DataError: as `change`; the same call goes on.
    """

    def with_mark(values: Values) -> Values:
        if values.get("serial") != serial:
            raise _Meanwhile
        return {**values, _SHORT: marked(values, lost=lost)[_SHORT]}

    try:
        record = change(store, name, SCHEMA, with_mark)
    except _Meanwhile:
        return False
    page = short_page(record).encode("utf-8", "replace")
    is_done = True

    def shorter(data: bytes | None) -> bytes | None:
        nonlocal is_done
        is_done = lost if data is None else serial_of(data) <= record["serial"]
        return page if is_done else None

    amend(store, page_name(str(record["channel"]), row_of(record)), shorter)
    return is_done
