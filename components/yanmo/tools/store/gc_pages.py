"""Which pages of nights gc makes short: those of nights before the newest of their channel.

Whole stay, however old: the pages of nights whose model became champion, in whichever channel; of those that
wait for a person; of those that go on; and those about which something was said a short time ago.

Cost: a page that is short already is known by its size in the listing. Of each other old page the night's
record is read, 3 to 6 kB.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import DataError
from yanmo.nights.night import BEGUN, Row
from yanmo.nights.overdue import MISSED
from yanmo.nights.places import page_name, record_name
from yanmo.nights.record import read_record, row_of
from yanmo.nights.short_pages import MOST_BYTES, is_short, marked, short_page
from yanmo.store.channel.document import kind_of_document
from yanmo.store.channel.held import HELD, read_held
from yanmo.store.objects import ObjectInfo, ObjectStore
from yanmo.tools.store.inventory import Inventory
from yanmo.tools.store.kept_pages import KeptPages
from yanmo.tools.store.pointed import read_all

log = logging.getLogger(__name__)
_PAGE = re.compile(r"nights/([^/]+)/(\d{4}-\d\d-\d\d)-([^/]+)\.html\Z")
_JUDGED = ("promoted", "not promoted", "not valid", "held")
Made = tuple[str, str]
"""Stage and key of what a night made."""


@dataclass(frozen=True, kw_only=True)
class ToShorten:
    """A page that is to be made short."""

    channel: str
    page: ObjectInfo
    record: str
    """Name of the night's record."""
    serial: int
    """Of the record when this was decided."""
    bytes: int
    """What that frees."""


@dataclass
class PagePlan:
    """What is to be done with the pages of nights."""

    to_shorten: list[ToShorten] = field(default_factory=list)
    whole: Counter[str] = field(default_factory=Counter)
    """Why old pages stay whole -> how many."""


@dataclass
class _Kept:
    """Nights whose pages stay whole."""

    champions: set[Made] = field(default_factory=set)
    """Models that became champion, and the verdicts that made them so."""
    waiting: set[Made] = field(default_factory=set)
    """Verdicts about which a person may decide."""


def pages_to_shorten(
    store: ObjectStore, inventory: Inventory, kept: KeptPages, older_than: float
) -> PagePlan:
    """What there is to do; nothing is written.

    Args:
        older_than: pages stay whole about which something was said later than so many seconds ago.

    Raises:
        DataError: a history or a list of held models is damaged, so that nobody can know what it kept.
    """
    plan = PagePlan()
    old = _old_pages(inventory.nights, kept.nights) if kept.nights else []
    if not old:
        return plan
    spared = _read_kept(store, inventory.pointers)
    written = {info.name: info.modified for info in inventory.nights}
    for channel, run, info in old:
        newest = max(info.modified, written.get(record_name(channel, run), 0.0))
        why = _judge(store, plan, spared, channel, run, info, store.clock() - newest >= older_than)
        if why:
            plan.whole[why] += 1
    return plan


def _old_pages(listed: Iterable[ObjectInfo], nights: int) -> list[tuple[str, str, ObjectInfo]]:
    """Channel, run and page of each whole page of a night before the newest `nights` of its channel.

    A night that never began does not count: a channel that rests for months loses nothing by that.
    """
    pages: dict[str, list[tuple[str, str, ObjectInfo]]] = defaultdict(list)
    for info in listed:
        if found := _PAGE.match(info.name):
            pages[found[1]].append((found[2], found[3], info))
    old = []
    for channel, of_channel in sorted(pages.items()):
        dates = sorted({date for date, run, _ in of_channel if not run.startswith(MISSED)}, reverse=True)
        first = dates[:nights][-1] if len(dates) >= nights else ""
        old += [(channel, run, info) for date, run, info in of_channel if date < first]
    return [one for one in old if one[2].bytes > MOST_BYTES]


def _read_kept(store: ObjectStore, pointers: list[ObjectInfo]) -> _Kept:
    kept = _Kept()
    named = [i for i in pointers if "/history/" in i.name or i.name.endswith("/champion.json")]
    for each in read_all(store, named):
        kept.champions.add((each.reference.stage, each.reference.key))
    for info in pointers:
        if kind_of_document(info.name) == HELD:
            held = read_held(store, info.name.split("/")[1])
            kept.waiting |= {(e.verdict.stage, e.verdict.key) for e in held.open(store.clock())}
    return kept


def _judge(
    store: ObjectStore, plan: PagePlan, kept: _Kept, channel: str, run: str, page: ObjectInfo, is_old: bool
) -> str:
    """Enter a page into the plan; or why it stays whole."""
    try:
        record = read_record(store, channel, run)
        if record is None:
            return "nothing is known of its night"
        row = row_of(record)
        why = "" if page_name(channel, row) == page.name else "another page is that of its night"
        why = why or _why_whole(record, row, kept)
        if why or not (is_old or is_short(record)):  # a short one that is not was left by a kill
            return why or "something was said of its night lately"
        freed = page.bytes - len(short_page(marked(record)).encode())
    except DataError as error:
        log.warning("%s/%s stays whole: %s", store.uri, page.name, error)
        return "the record of its night is damaged"
    name, serial = record_name(channel, run), int(record["serial"])
    one = ToShorten(channel=channel, page=page, record=name, serial=serial, bytes=freed)
    plan.to_shorten.append(one)
    return ""


def _why_whole(record: dict[str, Any], row: Row, kept: _Kept) -> str:
    stages = [(str(stage["stage"]), str(stage["key"])) for stage in record["stages"].values()]
    made = {one for one in stages if one[0] in ("train", "promote")}  # it may have measured the champion, too
    if row.state == BEGUN:
        return "its night goes on"
    if row.state == "promoted" or (row.state in _JUDGED and made & kept.champions):
        return "its model became champion"
    if row.state in _JUDGED and made & kept.waiting:
        return "its model waits for a person"
    return ""
