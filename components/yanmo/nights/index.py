"""The newest runs of a channel: a document that every run enters itself into, and the page made of it.

No stage lists a bucket: whoever has something to say of a run puts its row into the index, by
compare-and-swap, which counts the changes (`serial`). Then the page is made, and says of which change it is:
a slow writer cannot bring an older page back. What a kill left behind is mended by the next writer.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from yanmo.nights.night import Row, newest_first
from yanmo.nights.record import NightRecord
from yanmo.store.objects import ObjectStore, amend
from yanmo.store.record import Record

NEWEST = 400
"""Runs on the index, about 0.7 kB each in the document; older ones keep their records."""
_MARK = re.compile(rb"yanmo-serial[^0-9<>]{1,20}([0-9]{1,15})")
"""In a page: `<meta name="yanmo-serial" content="17">`."""
_HEAD = 2048


@dataclass(frozen=True, kw_only=True)
class Index:
    """The newest runs of a channel, the newest first."""

    serial: int = 0
    nights: tuple[Row, ...] = ()


INDEX = Record("yanmo.nights/1", Index, "restore it, or delete it: the next run begins it again")


def index_name(channel: str) -> str:
    """Where the document of the newest runs lies."""
    return f"nights/{channel}/index.json"


def index_page(channel: str) -> str:
    """Where the page of that document lies."""
    return f"nights/{channel}/index.html"


def rows_shown(store: ObjectStore, channel: str) -> list[Row]:
    """The newest runs of a channel. Raises DataError where the index is damaged."""
    return list((INDEX.read(store, index_name(channel)) or Index()).nights)


def publish(store: ObjectStore, record: NightRecord) -> None:
    """Show a run as its record says.

    Raises:
        StorageError, DataError: not all could be written; the same call goes on.
    """
    from yanmo.nights.pages.rendering import render_index

    row, channel = record.row, record.channel

    def with_row(index: Index | None) -> Index:
        index = index or Index(serial=_serial_of_page(store, channel))  # it was lost, or never there
        kept = newest_first([*(one for one in index.nights if one.name != row.name), row])[:NEWEST]
        changed = dataclasses.replace(index, nights=tuple(kept))
        return changed if changed == index else dataclasses.replace(changed, serial=index.serial + 1)

    index = INDEX.change(store, index_name(channel), with_row)
    assert index is not None
    page = render_index(channel, index.nights, index.serial).encode("utf-8", "replace")
    amend(store, index_page(channel), lambda data: page if _serial(data or b"") < index.serial else None)


def _serial_of_page(store: ObjectStore, channel: str) -> int:
    try:
        return max(0, _serial(store.read(index_page(channel))[0]))
    except FileNotFoundError:
        return 0


def _serial(page: bytes) -> int:
    """Of which change a page is; -1 where it does not say."""
    found = _MARK.search(page[:_HEAD])
    return int(found[1]) if found else -1
