"""When a cron line fires: five fields as crontab(5) has them, or six as KFP's recurring runs do.

Times of day are those of a time zone. A time that a change of the clock leaves out does not fire, and one
that it repeats fires twice: so does KFP (robfig/cron 1.2; its answers are in
tests/pipelines/cluster/schedules/cron_answers.json). In zones whose clocks change by half an hour
(Australia/Lord_Howe) it leaves out or moves what would fire within a day of a change: not done here.

Alternative not taken: croniter. 7.0.0 gives another answer than KFP in 10 of these 110 (it fires at
03:00 where the clock leaves out 02:30), and takes what KFP refuses (22-2, 5#2, L, R, a seventh field). A
clock and refusals of our own around it left about 150 of 172 lines (a draft).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(\*|\?|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?\Z")
_MOST_DAYS = 366 * 8
"""How far `next_after` looks: the 29th of February may be eight years away."""


@dataclass(frozen=True)
class Cron:
    """A cron line that was read."""

    line: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool
    fields: tuple[str, ...] = ()
    """Second, minute, hour, day, month, weekday as KFP takes them: Sunday is 0, `@daily` is written out."""

    def between(self, zone: tzinfo, since: float, until: float) -> Iterator[float]:
        """Yield when it fires after `since` and not after `until`, in order; Unix seconds."""
        day = datetime.fromtimestamp(since, zone).date()
        last = datetime.fromtimestamp(until, zone).date()
        while day <= last:
            if self._is_on(day):
                yield from (at for at in self._of_day(day, zone) if since < at <= until)
            day += timedelta(days=1)

    def next_after(self, zone: tzinfo, since: float) -> float | None:
        """Return when it fires next; None for never."""
        return next(self.between(zone, since, since + _MOST_DAYS * 86400.0), None)

    def _is_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return of_month and of_week
        return of_month or of_week  # crontab(5): where both are restricted, either will do

    def _of_day(self, day: date, zone: tzinfo) -> list[float]:
        found = set()
        for hour in self.hours:
            for minute in self.minutes:
                for second in self.seconds:
                    wall = datetime(day.year, day.month, day.day, hour, minute, second)
                    found |= set(_shown_at(wall, zone))
        return sorted(found)


def _shown_at(wall: datetime, zone: tzinfo) -> Iterator[float]:
    """Yield when clocks show it: once, never where the clock leaves it out, twice where it repeats it."""
    first, second = wall.replace(tzinfo=zone), wall.replace(tzinfo=zone, fold=1)
    if first.utcoffset() == second.utcoffset():  # no change of the clock is near
        yield first.timestamp()
        return
    for at in (first, second):
        if at.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall:
            yield at.timestamp()


def parse_cron(text: str) -> Cron:
    """Read a cron line.

    Raises:
        ValueError: it is none; says what was expected.
    """
    line = _SHORT.get(text.strip().lower(), text)
    fields = line.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise ValueError(
            f"cron {text[:100]!r}: expected minute, hour, day, month and day of the week, such as "
            "'0 21 * * *' (21:00 every day); six fields begin with the second, as in KFP"
        )
    try:
        seconds, minutes, hours = (
            _field(f, 0, most) for f, most in zip(fields[:3], (59, 59, 23), strict=True)
        )
        days, months = _field(fields[3], 1, 31), _field(fields[4], 1, 12, _MONTHS, 1)
        weekdays = _field(fields[5], 0, 7, _DAYS)
    except ValueError as error:
        raise ValueError(f"cron {text[:100]!r}: {error}") from None
    cron = Cron(
        text.strip(),
        seconds,
        minutes,
        hours,
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        any_day=fields[3][0] in "*?",
        any_weekday=fields[5][0] in "*?",
        fields=(*fields[:5], _sunday_as_0(fields[5], weekdays)),
    )
    if cron.next_after(UTC, 0.0) is None:
        raise ValueError(f"cron {text[:100]!r}: never fires: no month has such a day")
    return cron


def _sunday_as_0(text: str, weekdays: frozenset[int]) -> str:
    """KFP does not take 7."""
    return ",".join(str(day) for day in sorted({day % 7 for day in weekdays})) if "7" in text else text


def _field(text: str, least: int, most: int, names: Sequence[str] = (), first: int = 0) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part)
        if not match:
            raise ValueError(f"{part[:40]!r} is no number, range or *")
        whole, begin, end, step = match.groups()
        if whole in "*?":
            low, high = least, most
        else:
            low = _number(begin, names, first)
            high = _number(end, names, first) if end else most if step else low
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
