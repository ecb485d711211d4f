"""`yanmo nights rebuild`: the lists and pages of a channel's nights, made again of what is known of each."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from yanmo.common.errors import DataError, ExitCode
from yanmo.nights.changing import Values
from yanmo.nights.lists import read_month
from yanmo.nights.night import Row
from yanmo.nights.places import page_name
from yanmo.nights.publishing import publish, show_list
from yanmo.nights.record import read_record, row_of
from yanmo.nights.short_pages import shorten
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.store.objects import ObjectInfo, ObjectStore
from yanmo.tools.nights.given import index_of

log = logging.getLogger(__name__)
_SETTLED_SECONDS = 3600.0
"""After which nobody is about to write the page of a verdict that the record knows."""


@dataclass(frozen=True, kw_only=True)
class RebuildOptions(ToolOptions, group="rebuild"):
    """Enter every night of a channel into its lists again, and make their pages again.

    For lists that were damaged and deleted, and for the look of another version of Yanmo. Pages of
    verdicts stay as they are; one that was lost becomes a short page of what is known of its night.
    It lists nights/ of the store.
    """

    channel: str = channel_opt("channel whose nights are shown again")


def run(store: ObjectStore, options: RebuildOptions) -> int:
    channel, lost = options.channel, 0
    index_of(store, channel)
    rows: list[Row] = []
    for info in store.list(f"nights/{channel}/runs"):
        try:
            record = read_record(store, channel, info.name.rpartition("/")[2].removesuffix(".json"))
            if record is not None:
                rows.append(publish(store, record))
                lost += _is_replaced(store, record, info)
        except (DataError, ValueError) as error:
            log.warning("%s/%s is left out: %s", store.uri, info.name, error)
    months = sorted({row.month for row in rows})
    for month in months:
        values = read_month(store, channel, month)
        if values is not None:
            show_list(store, channel, month, values, again=True)
    index = index_of(store, channel)
    if index is not None:
        show_list(store, channel, "index", index, again=True)
    print(f"{len(rows)} nights of channel {channel} in {len(months)} months")
    if lost:
        print(
            f"{lost} pages of verdicts were lost: short ones are in their place; a backup has the whole ones"
        )
    return ExitCode.DONE


def _is_replaced(store: ObjectStore, record: Values, info: ObjectInfo) -> bool:
    """Whether the page of a night's verdict was lost, and a short one is in its place now."""
    is_settled = store.clock() - info.modified > _SETTLED_SECONDS
    if not is_settled or store.stat(page_name(str(record["channel"]), row_of(record))) is not None:
        return False
    return shorten(store, info.name, int(record["serial"]), lost=True)
