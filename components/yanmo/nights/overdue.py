"""Runs that nobody has ended: killed without a word, or behind after a kill.

A process that is killed cannot say so. So whoever sees the channel next looks at the runs that go on: the
first task of the next run, and `yanmo status`, which asks KFP and Kubernetes. Where nobody can be asked, a
run is silent, and no more: a stage of it was at work and nobody renews its lease, or nothing was heard of it
for half a day. Whether it was terminated, lost its node or still waits for one is not guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from yanmo.common.errors import DataError
from yanmo.nights.index import never_failing, publish, rows_shown
from yanmo.nights.night import BEGUN, DONE, SILENT, TERMINATED, Row, Words, seconds_of
from yanmo.nights.record import FAILED, RUN, WORKING, NightRecord, Run, StageEnd, read_record, record_end
from yanmo.store.objects import ObjectStore
from yanmo.store.runs.in_use import lease_name
from yanmo.store.runs.lease import is_live

log = logging.getLogger(__name__)
SILENT_SECONDS = 12 * 3600.0
"""A night of which nothing is at work is silent after so long: a pod may wait for a node for hours."""
_GRACE_SECONDS = 300.0
"""How long a lease must have been silent: a pod that was deleted may be started again at once."""
_KILLED = Words(
    "{} was at work and ended without a word: terminated, out of memory, a lost node or a deleted pod; "
    "`yanmo status` asks KFP. Another run goes on where it was saved.",
    "{} 正在工作时未留一言即中断：被终止、内存不足、节点丢失或 Pod 被删；`yanmo status` 会询问 KFP。"
    "另一次运行从已保存处继续。",
)
_UNHEARD = Words(
    "Nothing was heard of it for half a day; `yanmo status` asks KFP.",
    "半天没有任何消息；`yanmo status` 会询问 KFP。",
)
GOES_ON = "goes on"
SAID = {
    DONE: Words("It ended well, by KFP or Kubernetes.", "据 KFP 或 Kubernetes，正常结束。"),
    FAILED: Words(
        "It failed, by KFP or Kubernetes; its log says why.", "据 KFP 或 Kubernetes，已失败；原因见其日志。"
    ),
    TERMINATED: Words("It was terminated by hand.", "被人终止。"),
}
"""How somebody else says that a run ended -> in words."""
Ask = Callable[[str], str]
"""Id of a run -> one of `SAID`, `GOES_ON`, or "" for not known."""


def report_earlier(run: Run) -> None:
    """Report what became of the channel's nights that did not say so themselves; never fails."""
    with never_failing(run):
        settle(run.store, run.channel, but=run.run_id)


def settle(store: ObjectStore, channel: str, *, but: str = "", ask: Ask | None = None) -> int:
    """Enter what became of nights that go on in the index, and of those behind it; gives how many changed.

    Args:
        but: the run that asks.
        ask: whoever knows of runs; None for nobody.

    Raises:
        OSError, DataError, EnvironmentFault: the store does not answer, the lists are damaged, or a record
            is; then the other nights were looked at all the same.
    """
    changed, damaged = 0, None
    for row in rows_shown(store, channel):
        if row.state not in ((BEGUN, SILENT) if ask else (BEGUN,)) or row.run_id == but:
            continue
        try:
            changed += _settled(store, channel, row, ask or (lambda run_id: ""))
        except DataError as error:
            damaged = damaged or error
    if damaged is not None:
        raise damaged
    return changed


def _settled(store: ObjectStore, channel: str, row: Row, ask: Ask) -> bool:
    """Whether there was something to say of a night that goes on in the index."""
    record = read_record(store, channel, row.run_id)
    if record is None:
        return False
    if record.state in (BEGUN, SILENT):
        said = ask(row.run_id)
        if said in SAID:
            end = StageEnd(task=RUN, state=said, sentence=SAID[said])
        elif said == GOES_ON or record.state == SILENT or (why := _silence(store, record)) is None:
            return False
        else:
            end = StageEnd(task=RUN, state=SILENT, sentence=why)
        log.warning("night of %s (run %s): %s", row.date, row.run_id, end.sentence.en)
        run = Run(
            store=store,
            channel=channel,
            run_id=row.run_id,
            date=row.date,
            timezone=record.timezone,
            last=record.last,
        )
        record = record_end(run, end)
    publish(store, record)
    return True


def _silence(store: ObjectStore, record: NightRecord) -> Words | None:
    """Why nothing is to be heard any more of a night that goes on; None where it may go on."""
    now = store.clock()
    heard = seconds_of(record.began)
    for stage in record.stages.values():
        at = seconds_of(stage.at)
        heard = max(heard, at)
        is_at_work = stage.state == WORKING and stage.key
        if is_at_work and now - at > _GRACE_SECONDS and _is_silent(store, stage, now):
            return Words(_KILLED.en.format(stage.task), _KILLED.zh.format(stage.task))
    return _UNHEARD if now - heard > SILENT_SECONDS else None


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
