"""Reports how a run stands, on its record and the index of its channel.

A report never fails a run: whatever goes wrong here is a warning. Nor does it hold one up: the store gets
half a minute where it does not answer. Who wants Slack, DingTalk or mail gets it from Alertmanager
(manifests/).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from yanmo.common.errors import advice
from yanmo.nights.index import publish
from yanmo.nights.record import Run, StageEnd, Verdict, record_end, record_verdict
from yanmo.store.recall import Recall, under

log = logging.getLogger(__name__)
STORE_SECONDS = 30.0


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
    recall = Recall()
    timer = threading.Timer(STORE_SECONDS, recall.set)
    timer.daemon = True
    timer.start()
    try:
        with under(recall):
            yield
    except Exception as error:  # the run's work is what counts, and it stands
        log.warning("the index of nights of channel %s is behind: %s", run.channel, advice(error))
        log.debug("where it was raised", exc_info=error)
    finally:
        timer.cancel()
