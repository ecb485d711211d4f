"""When a cron line fires, and the same line in another zone: five fields as crontab(5) has them.

Times of day are those of a time zone. A time that a change of the clock leaves out does not fire, and one
that it repeats fires twice: so does KFP (robfig/cron 1.2; its answers are in
tests/pipelines/cluster/schedules/cron_answers.json). In zones whose clocks change by half an hour
(Australia/Lord_Howe) it leaves out or moves what would fire within a day of a change: not done here.

Alternative not taken: croniter. 7.0.0 gives another answer than KFP in 10 of these 110 (it fires at
03:00 where the clock leaves out 02:30), and takes what KFP refuses (22-2, 5#2, L, R, a seventh field). A
clock and refusals of our own around it left most of these lines (a draft).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from yanmo.options.values import zone_of

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(r"(\*|\?|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?\Z")
_MOST_DAYS = 366 * 8
"""How far `after` looks: the 29th of February may be eight years away."""


@dataclass(frozen=True)
class Cron:
    """A cron line that was read."""

    fields: tuple[str, ...]
    """Minute, hour, day, month, weekday as KFP takes them: Sunday is 0."""
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def after(self, zone: tzinfo, since: float) -> Iterator[float]:
        """Yield when it fires next, in Unix seconds; nothing for never."""
        return self.between(zone, since, since + _MOST_DAYS * 86400.0)

    def between(self, zone: tzinfo, since: float, until: float) -> Iterator[float]:
        """Yield when it fires after `since` and not after `until`, in order; Unix seconds."""
        day = datetime.fromtimestamp(since, zone).date()
        last = datetime.fromtimestamp(until, zone).date()
        while day <= last:
            if self._is_on(day):
                yield from (at for at in self._of_day(day, zone) if since < at <= until)
            day += timedelta(days=1)

    def is_any(self, field: int) -> bool:
        """Return whether one of `fields` restricts nothing."""
        return self.fields[field][0] in "*?"

    def _is_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.is_any(2) or self.is_any(4):
            return of_month and of_week
        return of_month or of_week  # crontab(5): where both are restricted, either will do

    def _of_day(self, day: date, zone: tzinfo) -> list[float]:
        """Return when clocks show its times: never where one leaves it out, twice where it repeats it."""
        found = set()
        for wall in (datetime(day.year, day.month, day.day, h, m) for h in self.hours for m in self.minutes):
            for at in (wall.replace(tzinfo=zone), wall.replace(tzinfo=zone, fold=1)):
                if at.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall:
                    found.add(at.timestamp())
        return sorted(found)


def parse_cron(text: str) -> Cron:
    """Read a cron line.

    Raises:
        ValueError: it is none; says what was expected.
    """
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(
            f"cron {text[:100]!r}: expected minute, hour, day, month and day of the week, such as "
            "'0 21 * * *' (21:00 every day)"
        )
    try:
        minutes, hours, days = (
            _field(*each) for each in ((fields[0], 0, 59), (fields[1], 0, 23), (fields[2], 1, 31))
        )
        months, weekdays = _field(fields[3], 1, 12, _MONTHS), _field(fields[4], 0, 7, _DAYS)
    except ValueError as error:
        raise ValueError(f"cron {text[:100]!r}: {error}") from None
    if 7 in weekdays:  # KFP does not take it
        weekdays = frozenset(day % 7 for day in weekdays)
        fields[4] = fields[4] if fields[4][0] in "*?" else ",".join(map(str, sorted(weekdays)))
    cron = Cron(tuple(fields), minutes, hours, days, months, weekdays)
    if next(cron.after(UTC, 0.0), None) is None:
        raise ValueError(f"cron {text[:100]!r}: never fires: no month has such a day")
    return cron


def _field(text: str, least: int, most: int, names: Sequence[str] = ()) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part)
        if not match:
            raise ValueError(f"{part[:40]!r} is no number, range or *")
        whole, begin, end, step = match.groups()
        if whole in "*?":
            low, high = least, most
        else:
            low = _number(begin, names, least)
            high = _number(end, names, least) if end else most if step else low
        by = int(step or 1)
        if not least <= low <= high <= most or by < 1:
            raise ValueError(f"{part[:40]!r} is not between {least} and {most}, or its ends are exchanged")
        found.update(range(low, high + 1, by))
    return frozenset(found)


def _number(text: str, names: Sequence[str], first: int) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + first
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text)


def written_in(cron: Cron, zone: str, target: str, since: float) -> Cron:
    """The line of `zone` as one of `target` that fires at the same times.

    KFP has one zone for all of its recurring runs. Where a clock change moves one of the two and not the
    other, no line of KFP's fires as the team means it.

    Raises:
        ValueError: there is none; says why.
    """
    weeks = [since + week * 7 * 86400.0 for week in range(3 * 53)]  # a change of the clock lasts for months
    shifts = {_offset(target, at) - _offset(zone, at) for at in weeks}
    line = " ".join(cron.fields)
    if len(shifts) > 1:
        raise ValueError(
            f"the clocks of {zone} and {target} do not change together, so no line of KFP's fires at "
            f"{line!r} of {zone} all year; give times of {target}, or have KFP's zone changed "
            "(cronScheduleTimezone of its ConfigMap pipeline-install-config)"
        )
    move = int(shifts.pop().total_seconds()) // 60
    times = [divmod(hour * 60 + minute + move, 1440) for hour in cron.hours for minute in cron.minutes]
    hours, minutes = {at // 60 for _, at in times}, {at % 60 for _, at in times}
    days, (any_day, any_month, any_weekday) = {day for day, _ in times}, [f in "*?" for f in cron.fields[2:]]
    can_move = days == {0} or (any_day and any_month and (any_weekday or len(days) == 1))
    if move and (not can_move or len(hours) * len(minutes) != len(times)):
        raise ValueError(
            f"{line!r} of {zone} cannot be written as one line of {target}, KFP's zone, as hours "
            f"or days begin at other moments there; give times of {target}"
        )
    weekday = cron.fields[4]
    if not any_weekday and days != {0}:
        weekday = _listed({(on + min(days)) % 7 for on in cron.weekdays}, 7)
    moved = (_listed(minutes, 60), _listed(hours, 24), *cron.fields[2:4], weekday)
    return parse_cron(" ".join(moved)) if move else cron


def _offset(zone: str, at: float) -> timedelta:
    return datetime.fromtimestamp(at, zone_of(zone)).utcoffset() or timedelta(0)


def _listed(numbers: set[int], whole: int) -> str:
    return "*" if len(numbers) == whole else ",".join(map(str, sorted(numbers)))
