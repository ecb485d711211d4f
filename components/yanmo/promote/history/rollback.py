"""Bring a former champion back: by compare-and-swap, with a record of who did it and why.

The model that is taken down is barred: the next night trains it again under the same key, finds it better
than what reigns, and would crown it again. `--to` its number lifts the bar.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.common.errors import DataError
from yanmo.promote.history.champion import CHAMPION, CrownLost, check_model, named, settle_evaluation
from yanmo.promote.history.records import Barred, Record, all_records, write_record
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer, swap_pointer
from yanmo.store.schema import utc_now

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a rollback would do."""

    channel: str
    reigning: Reference | None
    """None where the pointer is lost."""
    target: Record
    """The record whose model will reign again."""
    last: Record
    """The newest record when this was planned."""
    half_done: bool
    """The pointer was moved by a run that was killed before its record."""

    def __str__(self) -> str:
        then = f"{named(self.target.model)} (number {self.target.number}, crowned {self.target.since})"
        if self.reigning is None:
            return f"channel {self.channel!r} has lost its champion; it will be {then}"
        now = f"{named(self.reigning)} is champion of channel {self.channel!r}"
        if self.half_done:
            return f"{now} by a rollback that was not entered into the history; the record will be written"
        return f"{now}; it will be {then}. {named(self.reigning)} will be barred from the crown"


def plan_rollback(store: ObjectStore, channel: str, number: int = 0) -> Plan:
    """What to do; nothing is moved, and the target's files are verified.

    Args:
        number: record whose model shall reign; 0 is the champion before the present one, or the last one
            where the pointer to it is lost.

    Raises:
        DataError: there is nothing to go back to, or the target is damaged.
    """
    records, reigning = all_records(store, channel), read_pointer(store, channel, CHAMPION)
    if not records:
        raise DataError(
            f"channel {channel!r} of {store.uri} has no champion to roll back; see `yanmo promote history`"
        )
    if number > len(records) or number < 0:
        raise DataError(
            f"--to {number}: the history of channel {channel!r} has the numbers 1 to {len(records)}"
        )
    last = records[-1]
    half_done = _is_half_done(records, reigning)
    if number or reigning is None:
        target = _restored(records, number or last.number)
    else:
        target = _before(records, last.model if half_done else reigning, channel)
    if reigning is not None:
        _check_target(records, reigning, target, channel, half_done)
    check_model(open_reference(store, target.model), f"model of number {target.number}, the former champion")
    return Plan(channel=channel, reigning=reigning, target=target, last=last, half_done=half_done)


def _check_target(
    records: Sequence[Record], reigning: Reference, target: Record, channel: str, half_done: bool
) -> None:
    same = target.model.content_digest == reigning.content_digest
    if half_done and not same:
        own = max(r.number for r in records if r.model.content_digest == reigning.content_digest)
        raise DataError(
            f"a rollback to {named(reigning)} was not entered into the history of channel {channel!r}; "
            f"finish it first, with --to {own}"
        )
    if same and not half_done:
        raise DataError(f"{named(reigning)} is the champion of channel {channel!r} already; nothing to do")


def _is_half_done(records: Sequence[Record], reigning: Reference | None) -> bool:
    """Whether the pointer names a former champion though the last record is about another model."""
    if reigning is None or records[-1].model.content_digest == reigning.content_digest:
        return False
    return any(r.model.content_digest == reigning.content_digest for r in records)


def _restored(records: Sequence[Record], number: int) -> Record:
    """The coronation behind a record: of a rollback, the one whose model it brought back."""
    record = records[number - 1]
    while record.kind == "rollback" and 0 < record.restores < record.number:
        record = records[record.restores - 1]
    return record


def _before(records: Sequence[Record], reigning: Reference, channel: str) -> Record:
    """The coronation before the one by which `reigning` is champion, passing over barred models."""
    barred = {bar.model for bar in records[-1].barred} | {reigning.content_digest}
    own = next((r.number for r in reversed(records) if r.model.content_digest == reigning.content_digest), 0)
    first = _restored(records, own).number if own else records[-1].number + 1
    for number in range(first - 1, 0, -1):
        record = _restored(records, number)
        if record.model.content_digest not in barred:
            return record
    raise DataError(
        f"{named(reigning)} is the first champion of channel {channel!r}; there is none before it"
    )


def roll_back(store: ObjectStore, plan: Plan, *, who: str, why: str) -> Record:
    """Do it.

    Raises:
        CrownLost: the crown moved since the plan was made; nothing was changed.
    """
    model, target = open_reference(store, plan.target.model), plan.target
    if not plan.half_done and not swap_pointer(store, plan.channel, CHAMPION, plan.reigning, target.model):
        now = read_pointer(store, plan.channel, CHAMPION)
        raise CrownLost(
            f"channel {plan.channel!r} got another champion meanwhile ({named(now)}); nothing was moved. "
            "Look at `yanmo promote history`, then decide again"
        )
    _settle(store, plan.channel, model, target)  # before the record, without which this is half-done
    record = _record(plan, who, why)
    while not write_record(
        store, plan.channel, record
    ):  # a promotion of before the swap wrote its record late
        record = _record(plan, who, why, all_records(store, plan.channel)[-1])
    return record


def _record(plan: Plan, who: str, why: str, last: Record | None = None) -> Record:
    last, target, now = last or plan.last, plan.target, utc_now()
    taken_down = plan.last.model if plan.half_done else plan.reigning
    own = {target.model.content_digest} | ({taken_down.content_digest} if taken_down else set())
    barred = [bar for bar in last.barred if bar.model not in own]
    if taken_down:
        barred.append(Barred(model=taken_down.content_digest, when=now, who=who, why=why))
    return Record(
        number=last.number + 1,
        crowned_at=now,
        model=target.model,
        evaluation=target.evaluation,
        verdict=target.verdict,
        previous=taken_down,
        compared_with=None,
        kind="rollback",
        restores=target.number,
        who=who,
        why=why,
        barred=tuple(barred),
    )


def _settle(store: ObjectStore, channel: str, model: Output, target: Record) -> None:
    try:
        open_reference(store, target.evaluation)
    except DataError as error:
        log.warning("the evaluation of %s is lost (%s); run `yanmo evaluate` for it", model, error)
    settle_evaluation(store, channel, model, target.evaluation)
