"""Says how a night stands, wherever people hear of it: pages and feed in the store, a line to a chat.

Telling never fails a night: whatever goes wrong here is a warning. Nor does it hold one up: the store gets
half a minute where it does not answer, and the chat twenty seconds (webhook.py).

A line is sent once for each new state, by the process that enters first that it will. Where that one dies
before it is sent, the line is missing, and the index and the feed say the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import advice
from yanmo.nights.changing import Values, change
from yanmo.nights.night import BEGUN, Row
from yanmo.nights.places import page_name, record_name
from yanmo.nights.publishing import PageOf, publish
from yanmo.nights.record import FAILED, GIVEN_UP, SCHEMA, StageEnd, record_end, record_verdict, row_of
from yanmo.nights.settings import pages_url, webhook
from yanmo.nights.webhook import send
from yanmo.store.objects import ObjectStore
from yanmo.store.recall import Recall, under
from yanmo.store.schema import utc_now

log = logging.getLogger(__name__)
STORE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a channel, as telling needs it."""

    store: ObjectStore
    channel: str
    run_id: str
    date: str
    """Of its night, where nothing was said of it before."""
    timezone: str


def tell_begin(run: Run, end: StageEnd) -> None:
    """A stage begins its work: whoever finds it dead later knows where to look."""
    with never_failing(run):
        record_end(run.store, run.channel, run.run_id, run.date, run.timezone, end)


def tell_end(run: Run, end: StageEnd, *, by_chat: bool = True) -> None:
    """A stage has ended, or the first one has begun.

    Args:
        by_chat: whether a line is sent where the night has a new state.
    """
    record: Values | None = None
    with never_failing(run):
        record = record_end(run.store, run.channel, run.run_id, run.date, run.timezone, end)
        publish(run.store, record)
        if by_chat:
            announce(run.store, record)
    if record is None and by_chat and end.state in (FAILED, GIVEN_UP):
        _send_alone(run, end)  # maybe the store is what failed: the chat hears of it all the same


def _send_alone(run: Run, end: StageEnd) -> None:
    now, words = utc_now(), end.sentence
    row = Row(date=run.date, run_id=run.run_id, began=now, changed=now, state=end.state, sentence=words)
    _send(run.store, run.channel, row, link=False)


def tell_verdict(run: Run, found: Mapping[str, Any], page: PageOf | None = None) -> None:
    """The night has its verdict.

    Args:
        found: as in `record_verdict`.
        page: of the verdict.
    """
    with never_failing(run):
        said = {**found, **({"page": True} if page else {})}
        record = record_verdict(run.store, run.channel, run.run_id, run.date, run.timezone, said)
        publish(run.store, record, page)
        announce(run.store, record)


def announce(store: ObjectStore, record: Values) -> None:
    """Send a line of the night's state, unless it is sent already or there is nothing to say yet.

    Raises:
        StorageError, DataError: that cannot be known now; nothing was sent.
    """
    if record["state"] == BEGUN or _is_told(record) or _webhook() is None:
        return
    channel, run_id = str(record["channel"]), str(record["run_id"])
    mine: list[bool] = []

    def claimed(values: Values) -> Values:
        mine[:] = [not _is_told(values)]
        return {**values, "told": {"state": values["state"], "since": values["changed"], "at": utc_now()}}

    values = change(store, record_name(channel, run_id), SCHEMA, claimed)
    if mine == [True]:
        _send(store, channel, row_of(values), link=True)


def _is_told(values: Mapping[str, Any]) -> bool:
    told = values.get("told", {})
    return bool(told.get("state") == values["state"] and told.get("since") == values["changed"])


def _send(store: ObjectStore, channel: str, row: Row, *, link: bool) -> None:
    to = _webhook()
    if to is None:
        return
    address = page_address(store, channel, row) if link else ""
    sent = send(to, channel, row, address)
    if sent.is_sent:
        log.info("told %s of the night of %s: %s", to.host, row.date, row.state)
    else:
        log.warning("%s was not told of the night of %s: %s", to.host, row.date, sent.why)


def _webhook() -> Any:
    try:
        return webhook()
    except ValueError as error:
        log.warning("no line is sent: %s", error)
        return None


def page_address(store: ObjectStore, channel: str, row: Row) -> str:
    """Where a person finds a night's page: in a browser if somebody said where, else in the store."""
    name = page_name(channel, row)
    return f"{pages_url() or store.uri}/{name}"


@contextmanager
def never_failing(run: Run) -> Iterator[None]:
    """Whatever goes wrong inside is a warning, and ends soon."""
    recall = Recall()
    timer = threading.Timer(STORE_SECONDS, recall.set)
    timer.daemon = True
    timer.start()
    try:
        with under(recall):
            yield
    except Exception as error:  # the night's work is what counts, and it stands
        log.warning("the pages of nights of channel %s are behind: %s", run.channel, advice(error))
        log.debug("where it was raised", exc_info=error)
    finally:
        timer.cancel()
