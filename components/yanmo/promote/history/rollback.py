"""Bring a former champion back: by compare-and-swap, with a record of who did it and why.

The model that is taken down is recorded as rolled back: the next night trains it again under the same key,
finds it better than the champion, and would promote it again. `--to` its number takes that back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.common.errors import DataError
from yanmo.promote.history.champion import (
    CHAMPION,
    CHAMPION_EVALUATION,
    ChampionChanged,
    append_record,
    check_model,
    is_measured,
    name_beside_champion,
    named,
)
from yanmo.promote.history.champion_records import ChampionRecord, RolledBack, all_records
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer, swap_pointer
from yanmo.store.schema import utc_now

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RollbackPlan:
    """What a rollback would do."""

    channel: str
    current: Reference | None
    """The champion now; None where the pointer is lost."""
    target: ChampionRecord
    """The record whose model will be champion again."""
    last: ChampionRecord
    """The newest record when this was planned."""
    half_done: bool
    """The pointer was moved by a run that was killed before its record."""

    def __str__(self) -> str:
        then = f"{named(self.target.model)} (number {self.target.number}, champion since {self.target.since})"
        if self.current is None:
            return f"channel {self.channel!r} has lost its champion; it will be {then}"
        now = f"{named(self.current)} is champion of channel {self.channel!r}"
        if self.half_done:
            return f"{now} by a rollback that was not entered into the history; the record will be written"
        return f"{now}; it will be {then}. {named(self.current)} will not be promoted again"


def plan_rollback(store: ObjectStore, channel: str, number: int = 0) -> RollbackPlan:
    """Return what to do; nothing is moved, and the target's files are verified.

    Args:
        number: record whose model shall be champion; 0 is the champion before the current one, or the last
            one where the pointer to it is lost.

    Raises:
        DataError: there is nothing to go back to, or the target is damaged.
    """
    records, current = all_records(store, channel), read_pointer(store, channel, CHAMPION)
    if not records:
        raise DataError(
            f"channel {channel!r} of {store.uri} has no champion to roll back; see `yanmo promote history`"
        )
    if number > len(records) or number < 0:
        raise DataError(
            f"--to {number}: the history of channel {channel!r} has the numbers 1 to {len(records)}; "
            "give one of them"
        )
    last = records[-1]
    half_done = _is_half_done(records, current)
    if number or current is None:
        target = _restored(records, number or last.number)
    else:
        target = _before(records, last.model if half_done else current, channel)
    if current is not None:
        _check_target(records, current, target, channel, half_done)
    model = open_reference(store, target.model)
    check_model(model, f"model of number {target.number}, the former champion")
    return RollbackPlan(channel=channel, current=current, target=target, last=last, half_done=half_done)


def _check_target(
    records: Sequence[ChampionRecord],
    current: Reference,
    target: ChampionRecord,
    channel: str,
    half_done: bool,
) -> None:
    same = target.model.content_digest == current.content_digest
    if half_done and not same:
        own = max(r.number for r in records if r.model.content_digest == current.content_digest)
        raise DataError(
            f"a rollback to {named(current)} was not entered into the history of channel {channel!r}; "
            f"finish it first, with --to {own}"
        )
    if same and not half_done:
        raise DataError(f"{named(current)} is the champion of channel {channel!r} already; nothing to do")


def _is_half_done(records: Sequence[ChampionRecord], current: Reference | None) -> bool:
    """Return whether the pointer names a former champion though the last record is about another model."""
    if current is None or records[-1].model.content_digest == current.content_digest:
        return False
    return any(r.model.content_digest == current.content_digest for r in records)


def _restored(records: Sequence[ChampionRecord], number: int) -> ChampionRecord:
    """The promotion behind a record; for a rollback, the one whose model it brought back."""
    record = records[number - 1]
    while record.kind == "rollback" and 0 < record.restores < record.number:
        record = records[record.restores - 1]
    return record


def _before(records: Sequence[ChampionRecord], current: Reference, channel: str) -> ChampionRecord:
    """The promotion before the one by which `current` is champion, passing over rolled back models."""
    passed_over = {one.model for one in records[-1].rolled_back} | {current.content_digest}
    own = next((r.number for r in reversed(records) if r.model.content_digest == current.content_digest), 0)
    first = _restored(records, own).number if own else records[-1].number + 1
    for number in range(first - 1, 0, -1):
        record = _restored(records, number)
        if record.model.content_digest not in passed_over:
            return record
    raise DataError(
        f"{named(current)} is the first champion of channel {channel!r}; there is none before it to go "
        "back to (yanmo promote history shows them all)"
    )


def roll_back(store: ObjectStore, plan: RollbackPlan, *, who: str, why: str) -> ChampionRecord:
    """Do it.

    Raises:
        ChampionChanged: the champion changed since the plan was made; nothing was moved.
    """
    model, target = open_reference(store, plan.target.model), plan.target
    needs_evaluation = _needs_evaluation(store, plan.channel, model, target)  # read before anything moves
    if not plan.half_done and not swap_pointer(store, plan.channel, CHAMPION, plan.current, target.model):
        now = read_pointer(store, plan.channel, CHAMPION)
        raise ChampionChanged(
            f"channel {plan.channel!r} got another champion meanwhile ({named(now)}); nothing was moved. "
            "Look at `yanmo promote history`, then decide again"
        )
    if needs_evaluation:  # before the record, without which this is half-done
        name_beside_champion(store, plan.channel, CHAMPION_EVALUATION, target.model, target.evaluation)
    return append_record(store, plan.channel, target.model, lambda last: _record(plan, who, why, last))


def _record(plan: RollbackPlan, who: str, why: str, last: ChampionRecord | None) -> ChampionRecord:
    last, target, now = last or plan.last, plan.target, utc_now()
    taken_down = plan.last.model if plan.half_done else plan.current
    own = {target.model.content_digest} | ({taken_down.content_digest} if taken_down else set())
    rolled_back = [one for one in last.rolled_back if one.model not in own]
    if taken_down:
        rolled_back.append(RolledBack(model=taken_down.content_digest, when=now, who=who, why=why))
    return ChampionRecord(
        number=last.number + 1,
        champion_since=now,
        model=target.model,
        evaluation=target.evaluation,
        verdict=target.verdict,
        previous=taken_down,
        compared_with=None,
        kind="rollback",
        restores=target.number,
        who=who,
        why=why,
        rolled_back=tuple(rolled_back),
    )


def _needs_evaluation(store: ObjectStore, channel: str, model: Output, target: ChampionRecord) -> bool:
    """Return whether the pointer to the champion's evaluation is to be moved to that of the record."""
    try:
        open_reference(store, target.evaluation)
    except DataError as error:
        log.warning("the evaluation of %s is lost (%s); run `yanmo evaluate` for it", model, error)
    return not is_measured(store, channel, model)
