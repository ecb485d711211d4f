"""`yanmo nights rebuild`: the lists and pages of a channel's nights, made again of what is known of each."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from yanmo.common.errors import DataError, ExitCode
from yanmo.nights.lists import read_month
from yanmo.nights.publishing import publish, show_list
from yanmo.nights.record import read_record
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.store.objects import ObjectStore
from yanmo.tools.nights.given import index_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RebuildOptions(ToolOptions, group="rebuild"):
    """Enter every night of a channel into its lists again, and make their pages again.

    For lists that were damaged and deleted, and for the look of another version of Yanmo. Pages of
    verdicts stay as they are. It lists nights/ of the store.
    """

    channel: str = channel_opt("channel whose nights are shown again")


def run(store: ObjectStore, options: RebuildOptions) -> int:
    channel, number, months = options.channel, 0, set[str]()
    index_of(store, channel)
    for info in store.list(f"nights/{channel}/runs"):
        try:
            record = read_record(store, channel, info.name.rpartition("/")[2].removesuffix(".json"))
            if record is not None:
                months.add(publish(store, record).month)
                number += 1
        except (DataError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s/%s is left out: %s", store.uri, info.name, error)
    for month in sorted(months):
        values = read_month(store, channel, month)
        if values is not None:
            show_list(store, channel, month, values, again=True)
    index = index_of(store, channel)
    if index is not None:
        show_list(store, channel, "index", index, again=True)
    print(f"{number} nights of channel {channel} in {len(months)} months")
    return ExitCode.DONE
