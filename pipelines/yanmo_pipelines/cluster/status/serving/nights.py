"""How the nights went: when the cron line made one due, and what the store has seen of it since.

A night begins when its cron line fires and ends so many seconds later, or when the next one begins.

    due       it has begun by the clock; nothing of it was seen yet, and it has still time to begin
    begun     something of the channel was made or found since, or is being made now
    met       its last stage has ended well
    paused    a stage paused because its own hours were over: the next night goes on
    failed    it began, and neither of these had happened when it ended
    missed    nothing was seen when it should have begun
    unknown   the store does not answer, and none of what it said before decides

A night that begins late is `missed` until it begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import tzinfo
from itertools import pairwise

from yanmo_pipelines.cluster.schedules.cron import Cron

NIGHT_STATES = ("due", "begun", "met", "paused", "failed", "missed", "unknown")
_KEPT = 14
_LOOK_BACK_SECONDS = 40 * 86400.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """When nights are due."""

    cron: Cron
    zone: tzinfo
    seconds: float
    """From the begin of a night to its end."""
    begin_seconds: float
    """How soon something of it must be seen."""
    stage: str
    """Its last stage."""
    also: tuple[tuple[Cron, tzinfo], ...] = ()
    """Other schedules of the same channel."""

    def begins(self, since: float, until: float) -> list[float]:
        """When nights begin after `since` and not after `until`, in order."""
        clocks = ((self.cron, self.zone), *self.also)
        return sorted({at for cron, zone in clocks for at in cron.between(zone, since, until)})

    def next_after(self, since: float) -> float | None:
        """When the next one begins."""
        clocks = ((self.cron, self.zone), *self.also)
        return min((at for cron, zone in clocks if (at := cron.next_after(zone, since))), default=None)


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What was seen of one channel; Unix seconds."""

    ended: tuple[tuple[str, float], ...] = ()
    """Stages that ended well, and when."""
    paused: tuple[float, ...] = ()
    works_since: tuple[float, ...] = ()
    """Since when which work goes on now."""


@dataclass(frozen=True)
class Night:
    """One night."""

    begin: float
    end: float
    state: str


def nights(plan: Plan, signs: Signs, now: float, known_until: float, first: float) -> list[Night]:
    """The newest nights that have begun by the clock, oldest first: a fortnight of them at most.

    Args:
        known_until: until when the store was seen; earlier than `now` where it does not answer.
        first: nights before are nobody's business.
    """
    since = max(first, now - _LOOK_BACK_SECONDS)
    begins = plan.begins(since - 1e-3, now)[-_KEPT:]
    if not begins:
        return []
    ends = [min(begin + plan.seconds, after) for begin, after in pairwise([*begins, float("inf")])]
    return [
        Night(begin, end, _state(plan, signs, begin, end, now, known_until))
        for begin, end in zip(begins, ends, strict=True)
    ]


def _state(plan: Plan, signs: Signs, begin: float, end: float, now: float, known_until: float) -> str:
    ended = [at for stage, at in signs.ended if stage == plan.stage]
    if _any_in(ended, begin, end):
        return "met"
    if _any_in(signs.paused, begin, end):
        return "paused"
    due = min(begin + plan.begin_seconds, end)
    works = any(known_until >= begin for _ in signs.works_since) and now < end
    has_begun = (
        works or _any_in([at for _, at in signs.ended], begin, end) or _any_in(signs.works_since, begin, end)
    )
    decided = end if has_begun else due
    if known_until < decided <= now:
        return "unknown"
    if has_begun:
        return "begun" if now < end else "failed"
    return "due" if now < due else "missed"


def _any_in(times: Iterable[float], begin: float, end: float) -> bool:
    return any(begin <= at < end for at in times)
