"""Runs that nobody has ended: killed without a word, or behind after a kill.

A process that is killed cannot say so. So the first task of the next run looks at those that go on. One is
dead where a stage of it was at work and nobody renews its lease, or where nothing was heard of it for half a
day.
"""

from __future__ import annotations

import logging

from yanmo.common.errors import DataError
from yanmo.nights.index import publish, rows_shown
from yanmo.nights.night import BEGUN, Row, Words, seconds_of
from yanmo.nights.record import FAILED, WORKING, NightRecord, Run, StageEnd, read_record, record_end
from yanmo.nights.reporting import never_failing
from yanmo.store.objects import ObjectStore
from yanmo.store.runs.in_use import lease_name
from yanmo.store.runs.lease import is_live

log = logging.getLogger(__name__)
SILENT_SECONDS = 12 * 3600.0
"""A night of which nothing is at work is given up after so long: a pod may wait for a node for hours."""
_GRACE_SECONDS = 300.0
"""How long a lease must have been silent: a pod that was deleted may be started again at once."""
_KILLED = Words(
    "its process was killed: out of memory, a lost node, a deleted pod",
    "进程被杀：内存不足、节点丢失或 Pod 被删",
)
_SILENT = Words("nothing was heard of it for half a day", "半天没有任何消息")


def report_earlier(run: Run) -> None:
    """Report what became of the channel's nights that did not say so themselves; never fails."""
    with never_failing(run):
        settle(run.store, run.channel, but=run.run_id)


def settle(store: ObjectStore, channel: str, *, but: str = "") -> int:
    """Enter what became of nights that go on in the index, and of those behind it; gives how many changed.

    Args:
        but: the run that asks.

    Raises:
        OSError, DataError, EnvironmentFault: the store does not answer, the lists are damaged, or a record
            is; then the other nights were looked at all the same.
    """
    changed, damaged = 0, None
    for row in rows_shown(store, channel):
        if row.state != BEGUN or row.run_id == but:
            continue
        try:
            changed += _settled(store, channel, row)
        except DataError as error:
            damaged = damaged or error
    if damaged is not None:
        raise damaged
    return changed


def _settled(store: ObjectStore, channel: str, row: Row) -> bool:
    """Whether there was something to say of a night that goes on in the index."""
    record = read_record(store, channel, row.run_id)
    if record is None:
        return False
    if record.state == BEGUN:
        dead = _death(store, record)
        if dead is None:
            return False
        log.warning("night of %s (run %s): %s", row.date, row.run_id, dead.sentence.en)
        run = Run(store=store, channel=channel, run_id=row.run_id, date=row.date, timezone=record.timezone)
        record = record_end(run, dead)
    publish(store, record)
    return True


def _death(store: ObjectStore, record: NightRecord) -> StageEnd | None:
    """How a night that goes on has ended without saying so; None where it may go on."""
    now = store.clock()
    last, heard = None, seconds_of(record.began)
    for stage in record.stages.values():
        at = seconds_of(stage.at)
        heard = max(heard, at)
        if stage.state != WORKING:
            continue
        last = stage
        if stage.key and now - at > _GRACE_SECONDS and _is_silent(store, stage, now):
            return _ended(stage, _KILLED)
    if now - heard <= SILENT_SECONDS:
        return None
    return _ended(last or StageEnd(task="resolve", state=WORKING), _SILENT)


def _is_silent(store: ObjectStore, stage: StageEnd, now: float) -> bool:
    name = lease_name(stage.stage, stage.key)
    info = store.stat(name)
    if info is None:
        return True
    age = now - info.modified
    try:
        return age > _GRACE_SECONDS or not is_live(store.read(name)[0], age)
    except FileNotFoundError:
        return True


def _ended(stage: StageEnd, why: Words) -> StageEnd:
    sentence = Words(
        f"{stage.task} ended without a word: {why.en}. The next run goes on where it was saved.",
        f"{stage.task} 未留一言即告中断：{why.zh}。下一次运行从已保存处继续。",
    )
    return StageEnd(task=stage.task, stage=stage.stage, key=stage.key, state=FAILED, sentence=sentence)
