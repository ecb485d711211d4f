"""Which records of runs gc keeps: those of a channel's newest runs, and of its newest nights.

Only nights in which something ran count: a channel that rested for a month loses nothing by that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, tzinfo

from yanmo.common.evening import evening_of
from yanmo.store.objects import ObjectInfo
from yanmo.store.runs.run_record import is_run_record


@dataclass(frozen=True)
class Newest:
    """How much of each channel stays, however old."""

    runs: int = 0
    nights: int = 0
    zone: tzinfo = UTC
    """Where noon divides two nights."""

    def night(self, modified: float) -> date:
        """The evening of the night in which something was written, at `modified` Unix seconds."""
        return evening_of(modified, self.zone)


def passed_over(
    listed: Iterable[ObjectInfo], newest: Newest, is_old: Callable[[float], bool]
) -> list[ObjectInfo]:
    """The records of runs that keep nothing any more, by name.

    Args:
        listed: all below pointers/.
        is_old: whether what was written at this time may go.
    """
    by_channel: dict[str, list[ObjectInfo]] = defaultdict(list)
    for info in sorted(listed, key=lambda info: info.modified, reverse=True):
        if is_run_record(info.name):
            by_channel[info.name.split("/")[1]].append(info)
    found: list[ObjectInfo] = []
    for records in by_channel.values():
        nights = list(dict.fromkeys(newest.night(info.modified) for info in records))[: newest.nights]
        found += [
            info
            for info in records[newest.runs :]
            if is_old(info.modified) and newest.night(info.modified) not in nights
        ]
    return sorted(found, key=lambda info: info.name)
