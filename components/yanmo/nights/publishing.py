"""Shows what is said of a night: its page, the lists, the feed.

The order is what a kill leaves right: the record, the night's page, the month, the index, and last the pages
made of these. So a row on an index has a page, and whatever is behind is mended by the next writer.
"""

from __future__ import annotations

from collections.abc import Callable

from yanmo.nights.changing import Values, put_page
from yanmo.nights.lists import add_channel, channels_in, drop_row, months_in, put_row, read_index, rows_in
from yanmo.nights.night import Row
from yanmo.nights.places import TOP, feed_name, list_page, page_name
from yanmo.nights.record import row_of
from yanmo.nights.short_pages import is_short, short_page
from yanmo.store.objects import ObjectStore

PageOf = Callable[[Values], str]
"""Gives a night's page; is given the night's record, whose serial stands in its head."""


def publish(store: ObjectStore, record: Values, page: PageOf | None = None) -> Row:
    """Show a night as its record says; gives its row.

    Args:
        page: of the verdict; by default a page is made of the record. One that was made short stays short
            until somebody has more to say of the night.

    Raises:
        StorageError, DataError: not all could be written; the same call goes on.
    """
    row, channel = row_of(record), str(record["channel"])
    has_verdict = bool(record.get("verdict", {}).get("page"))
    if is_short(record):
        put_page(store, page_name(channel, row), int(record["serial"]), lambda: short_page(record))
    elif page or not has_verdict:
        make, serial = page or _night_page, int(record["serial"])
        put_page(store, page_name(channel, row), serial, lambda: make(record), again=page is not None)
    show_row(store, channel, row)
    return row


def show_row(store: ObjectStore, channel: str, row: Row) -> None:
    """Enter a night into the lists, and show them; raises as `publish`."""
    month, index = put_row(store, channel, row)
    _show(store, channel, row.month, month, index)


def hide_row(store: ObjectStore, channel: str, row: Row) -> None:
    """Take a night out of the lists; raises as `publish`."""
    month, index = drop_row(store, channel, row)
    _show(store, channel, row.month, month, index)


def _show(store: ObjectStore, channel: str, which: str, month: Values, index: Values) -> None:
    show_list(store, channel, which, month)
    show_list(store, channel, "index", index)


def show_list(store: ObjectStore, channel: str, which: str, values: Values, *, again: bool = False) -> None:
    """Make the pages of a list again where they are behind; raises as `publish`.

    Args:
        again: also where they are not, as when another version of Yanmo made them.
    """
    from yanmo.nights.feed import feed_of
    from yanmo.nights.pages.rendering import channels_page, index_page, month_page

    serial = int(values["serial"])
    rows = rows_in(values)
    page = list_page(channel, which)
    if which != "index":
        put_page(store, page, serial, lambda: month_page(channel, which, rows, serial), again=again)
        return
    months = months_in(values)
    put_page(store, page, serial, lambda: index_page(channel, rows, months, serial), again=again)
    feed = str(values.get("feed", ""))
    put_page(store, feed_name(channel), serial, lambda: feed_of(channel, rows, feed, serial), again=again)
    channels = add_channel(store, channel)
    of_all = int(channels["serial"])
    put_page(store, TOP, of_all, lambda: channels_page(channels_in(channels), of_all), again=again)


def rows_shown(store: ObjectStore, channel: str) -> list[Row]:
    """The newest nights of a channel; raises DataError where the index is damaged."""
    return rows_in(read_index(store, channel))


def _night_page(record: Values) -> str:
    from yanmo.nights.pages.rendering import night_page

    return night_page(record, row_of(record))
