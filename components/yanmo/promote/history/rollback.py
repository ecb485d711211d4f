"""Bring a former champion back: a record of its own says who did it and why.

The model that is taken down is recorded as rolled back: the next night trains it again under the same key,
finds it better than the champion, and would promote it again. `--to` its number takes that back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.common.errors import DataError
from yanmo.promote.history.champion import append, check_model
from yanmo.store.champion_records import CHAMPION, ChampionRecord, RolledBack, all_records, follow, named
from yanmo.store.objects import ObjectStore
from yanmo.store.output import open_reference
from yanmo.store.pointers import place_flags, read_pointer
from yanmo.store.record import utc_now


@dataclass(frozen=True, kw_only=True)
class RollbackPlan:
    """What a rollback would do."""

    channel: str
    last: ChampionRecord
    """The end of the history, whose model is champion now."""
    target: ChampionRecord
    """The record whose model will be champion again; the last one where only the pointer is to follow it."""

    @property
    def is_half_done(self) -> bool:
        """Whether a change that was killed, or whoever lost the pointer, left only that to be moved."""
        return self.target is self.last

    def __str__(self) -> str:
        now = f"{named(self.last.model)} is champion of channel {self.channel!r}"
        if self.is_half_done:
            return f"{now} by the history; the pointer {CHAMPION} will name it"
        then = f"{named(self.target.model)} (number {self.target.number}, champion since {self.target.since})"
        return f"{now}; it will be {then}. {named(self.last.model)} will not be promoted again"


def plan_rollback(store: ObjectStore, channel: str, number: int = 0) -> RollbackPlan:
    """Return what to do; nothing is moved, and the target's files are verified.

    Args:
        number: record whose model shall be champion; 0 is the champion before the current one. Where the
            pointer is lost or behind, as a change was killed before it moved, it only follows the history.

    Raises:
        DataError: there is nothing to go back to, or the target is damaged.
    """
    pointed, records = read_pointer(store, channel, CHAMPION), all_records(store, channel)
    if not records:
        raise DataError(
            f"channel {channel!r} of {store.uri} has no champion to roll back; see `yanmo promote history "
            f"{place_flags(store, channel)}`"
        )
    if number > len(records) or number < 0:
        raise DataError(
            f"--to {number}: the history of channel {channel!r} has the numbers 1 to {len(records)}; "
            "give one of them"
        )
    last = records[-1]
    is_behind = pointed != last.model
    target = last if is_behind else None
    if number:
        asked = _restored(records, number)
        is_champion = asked.model.content_digest == last.model.content_digest
        if is_champion and not is_behind:
            raise DataError(
                f"{named(last.model)} is the champion of channel {channel!r} already; nothing to do"
            )
        target = last if is_champion else asked
    target = target or _before(records, channel)
    check_model(open_reference(store, target.model), f"model of number {target.number}, a former champion")
    return RollbackPlan(channel=channel, last=last, target=target)


def _restored(records: Sequence[ChampionRecord], number: int) -> ChampionRecord:
    """The promotion behind a record; for a rollback, the one whose model it brought back."""
    record = records[number - 1]
    while record.kind == "rollback" and 0 < record.restores < record.number:
        record = records[record.restores - 1]
    return record


def _before(records: Sequence[ChampionRecord], channel: str) -> ChampionRecord:
    """The promotion before the one by which the champion is it, passing over rolled back models."""
    last = records[-1]
    passed_over = {one.model for one in last.rolled_back} | {last.model.content_digest}
    for number in range(_restored(records, last.number).number - 1, 0, -1):
        record = _restored(records, number)
        if record.model.content_digest not in passed_over:
            return record
    raise DataError(
        f"{named(last.model)} is the first champion of channel {channel!r}; there is none before it to go "
        "back to (yanmo promote history shows them all)"
    )


def roll_back(store: ObjectStore, plan: RollbackPlan, *, who: str, why: str) -> ChampionRecord:
    """Do it.

    Raises:
        ChampionChanged: the champion changed since the plan was made; nothing was moved.
    """
    last, target, now = plan.last, plan.target, utc_now()
    if plan.is_half_done:
        follow(store, plan.channel)
        return last
    taken_down = RolledBack(model=last.model.content_digest, when=now, who=who, why=why)
    back = {target.model.content_digest, taken_down.model}
    record = ChampionRecord(
        number=last.number + 1,
        champion_since=now,
        model=target.model,
        evaluation=target.evaluation,
        verdict=target.verdict,
        previous=last.model,
        kind="rollback",
        restores=target.number,
        who=who,
        why=why,
        rolled_back=(*(one for one in last.rolled_back if one.model not in back), taken_down),
    )
    return append(store, plan.channel, record)
