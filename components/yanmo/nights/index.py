"""The newest runs of a channel: a document that every run enters itself into, and the page made of it.

The page is in English and Chinese, one file, and loads nothing (common/pages).

No stage lists a bucket: whoever has something to say of a run puts its row into the index, by
compare-and-swap, which counts the changes (`serial`). Then the page is made, and says of which change it is:
a slow writer cannot bring an older page back. What a kill left behind is mended by the next writer.

A report never fails a run: whatever goes wrong here is a warning. Nor does it hold one up. Who wants Slack,
DingTalk or mail gets it from Alertmanager (manifests/).
"""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from yanmo.common.errors import advice
from yanmo.common.waiting import Cancellation, under
from yanmo.nights.night import BEGUN, LINES_OF_A_VERSE, Row, Words, newest_first
from yanmo.nights.record import NightRecord, Run, StageEnd, Verdict, record_end, record_verdict
from yanmo.store.objects import ObjectStore, amend
from yanmo.store.record import Record

log = logging.getLogger(__name__)
STORE_SECONDS = 30.0
"""How long a report waits for a store that does not answer."""

NEWEST = 400
"""Runs on the index, about 0.7 kB each in the document; older ones keep their records."""
_MARK = re.compile(rb"yanmo-serial[^0-9<>]{1,20}([0-9]{1,15})")
"""In a page: `<meta name="yanmo-serial" content="17">`."""
_HEAD = 2048
_TEMPLATE = Path(__file__).with_name("index.html.jinja")
_SEALS = {
    "begun": ("", "作", Words("going on", "进行中")),
    "promoted": ("yes", "准", Words("promoted", "晋升")),
    "not promoted": ("no", "留", Words("not promoted", "未晋升")),
    "not valid": ("bad", "废", Words("not valid", "无效")),
    "held": ("held", "候", Words("won, and waits for a person", "胜出，待人决定")),
    "nothing new": ("no", "静", Words("nothing new", "无新数据")),
    "done": ("yes", "成", Words("done", "已完成")),
    "paused": ("held", "歇", Words("paused", "已暂停")),
    "failed": ("bad", "败", Words("failed", "失败")),
    "given up": ("bad", "弃", Words("given up", "已放弃")),
    "terminated": ("no", "止", Words("terminated", "被终止")),
}
"""State -> style of its seal, what stands in it, in words."""
_NO_END = Words(
    "No end of it is recorded: it goes on, or was killed or terminated. What it saved is kept.",
    "没有它结束的记录：或在进行，或被杀、被终止。已保存的都在。",
)


@dataclass(frozen=True, kw_only=True)
class Index:
    """The newest runs of a channel, the newest first."""

    serial: int = 0
    nights: tuple[Row, ...] = ()


INDEX = Record("yanmo.nights/1", Index, "restore it, or delete it: the next run begins it again")


def index_name(channel: str) -> str:
    """Return where the document of the newest runs lies."""
    return f"nights/{channel}/index.json"


def index_page(channel: str) -> str:
    """Return where the channel's page of its newest runs lies."""
    return f"nights/{channel}/index.html"


def rows_shown(store: ObjectStore, channel: str) -> list[Row]:
    """The newest runs of a channel. Raises DataError where the index is damaged."""
    return list((INDEX.read(store, index_name(channel)) or Index()).nights)


def publish(store: ObjectStore, record: NightRecord) -> None:
    """Show a run as its record says.

    Raises:
        StorageError, DataError: not all could be written; the same call goes on.
    """
    row, channel = record.row, record.channel

    def with_row(index: Index | None) -> Index:
        index = index or Index(serial=_serial_of_page(store, channel))  # it was lost, or never there
        kept = newest_first([*(one for one in index.nights if one.name != row.name), row])[:NEWEST]
        changed = dataclasses.replace(index, nights=tuple(kept))
        return changed if changed == index else dataclasses.replace(changed, serial=index.serial + 1)

    index = INDEX.change(store, index_name(channel), with_row)
    assert index is not None
    page = _page_of(channel, index).encode("utf-8", "replace")
    amend(store, index_page(channel), lambda data: page if _serial(data or b"") < index.serial else None)


def _serial_of_page(store: ObjectStore, channel: str) -> int:
    try:
        return max(0, _serial(store.read(index_page(channel))[0]))
    except FileNotFoundError:
        return 0


def _serial(page: bytes) -> int:
    """Return the number of the change that a page shows; -1 where it does not say."""
    found = _MARK.search(page[:_HEAD])
    return int(found[1]) if found else -1


def _page_of(channel: str, index: Index) -> str:
    from yanmo.common.pages import html

    def verse(text: str) -> list[str]:
        return [line for line in text.split("\n") if line.strip()][:LINES_OF_A_VERSE]

    def utc(when: str) -> str:
        return when.replace("T", " ").removesuffix("+00:00") + " UTC"

    filters = {"verse": verse, "utc": utc}
    newest, older = index.nights[:1], index.nights[1:]
    older = tuple(dataclasses.replace(r, sentence=_NO_END) if r.state == BEGUN else r for r in older)
    return html.render(
        _TEMPLATE, filters, channel=channel, rows=[*newest, *older], serial=index.serial, marks=_SEALS
    )


def report_begin(run: Run, end: StageEnd) -> None:
    """A stage begins its work: whoever finds it dead later knows where to look."""
    with never_failing(run):
        record_end(run, end)


def report_end(run: Run, end: StageEnd) -> None:
    """A stage has ended, or the first one has begun."""
    with never_failing(run):
        publish(run.store, record_end(run, end))


def report_verdict(run: Run, found: Verdict) -> None:
    """The run has its verdict."""
    with never_failing(run):
        publish(run.store, record_verdict(run, found))


@contextmanager
def never_failing(run: Run) -> Iterator[None]:
    """Whatever goes wrong inside is a warning, and ends soon."""
    cancellation = Cancellation()
    timer = threading.Timer(STORE_SECONDS, cancellation.set)
    timer.daemon = True
    timer.start()
    try:
        with under(cancellation):
            yield
    except Exception as error:  # the run's work is what counts, and it stands
        log.warning("the index of nights of channel %s is behind: %s", run.channel, advice(error))
        log.debug("where it was raised", exc_info=error)
    finally:
        timer.cancel()
