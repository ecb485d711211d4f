"""When a run must stop, and with which settings it runs until then: `--night`, `--stop-at`, `--max-seconds`.

A run is a series of time windows. The supervisor asks for the current one and starts the workers with its
settings. After the first step beyond its end, rank 0 has all ranks save and end: paused, or to be started
again with the settings of the next window. Times are Unix seconds; times of day are read in `--timezone`, so
that the night of a clock change is an hour longer or shorter, as the clock shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, tzinfo
from datetime import time as WallTime
from typing import Any, Literal

from yanmo.options.fields import Options, flag, opt
from yanmo.options.time_zone import zone_of

Then = Literal["paused", "changed"]
Clock = Callable[[], float]
"""Unix seconds, as `time.time`."""


@dataclass(frozen=True, kw_only=True)
class HoursOptions(Options, group="hours"):
    """When the training runs, and what differs by night: docs/reference/train.md"""

    max_seconds: float = opt(
        0.0,
        "seconds after which the run saves a checkpoint and pauses, 0 for no limit",
        kind="environment",
        often=True,
        trial=0.0,
    )
    stop_at: str = opt(
        "", "time of day, HH:MM, at which the run saves a checkpoint and pauses", kind="environment", trial=""
    )
    night: str = opt(
        "",
        "hours of the night, HH:MM-HH:MM, such as 21:00-08:00; outside of them --by-day applies",
        kind="environment",
        often=True,
        trial="",
    )
    by_day: str = opt(
        "pause",
        "outside of --night: pause until the command runs again at night, or train with the settings "
        "of the day",
        kind="environment",
        choices=("pause", "train"),
    )
    timezone: str = opt(
        "UTC", "time zone of --stop-at and --night, such as Asia/Shanghai", kind="environment"
    )
    when_busy: str = opt(
        "train",
        "what a night does while another training of the channel that was told end or wait is at work: train "
        "beside it, end without one, or wait for it",
        kind="environment",
        choices=("train", "end", "wait"),
    )
    night_micro_batch: int = opt(
        0, "--micro-batch during --night; 0 is the same as by day", kind="execution", trial=0
    )
    night_memory_share: float = opt(
        0.0, "--memory-share during --night; 0 is the same as by day", kind="execution", most=1, trial=0.0
    )
    night_power_watts: int = opt(
        0, "--power-watts during --night; 0 is the same as by day", kind="execution", trial=0
    )

    def contradictions(self) -> list[str]:
        """Return the options that contradict each other."""
        zone_of(self.timezone)  # these raise by themselves
        if self.stop_at:
            wall_time(self.stop_at, "--stop-at")
        if self.night:
            night_of(self.night)
        given = next(iter(self.by_night_only()), "")
        if given and not self.night:
            return [f"{flag('night_' + given)} applies during --night, which is not given"]
        return []

    def by_night_only(self) -> dict[str, Any]:
        """Option -> its value at night, for the options that have one."""
        names = [f.name for f in fields(HoursOptions) if f.name.startswith("night_")]
        return {name.removeprefix("night_"): getattr(self, name) for name in names if getattr(self, name)}


@dataclass(frozen=True)
class TimeWindow:
    """A part of a run during which its settings stay the same."""

    is_night: bool
    """Whether the night settings apply."""
    ends_at: float
    """Unix seconds; infinity for never. In a window that is over already, no training is started."""
    then: Then
    """How the workers end when it is over: see `WorkerJob`."""
    reason: str
    """Why it ends, for the log."""


class TimeWindows:
    """The time windows of a run that begins when this object is made."""

    def __init__(self, hours: HoursOptions, clock: Clock = time.time) -> None:
        self._hours, self._clock = hours, clock
        self._began = clock()
        self._zone = zone_of(hours.timezone)

    def current(self) -> TimeWindow:
        """Return the current time window."""
        ends = [*self._stops()]
        is_night = False
        if self._hours.night:
            is_night, end = self._of_the_night()
            ends.append(end)
        ends_at, then, reason = min(ends, default=(float("inf"), "paused", ""), key=lambda end: end[0])
        return TimeWindow(is_night, ends_at, then, reason)

    @property
    def is_over(self) -> bool:
        """Return whether there is nothing to train now: the hours have not begun, or are over."""
        window = self.current()
        return window.then == "paused" and window.ends_at <= self._clock()

    def _stops(self) -> list[tuple[float, Then, str]]:
        hours, found = self._hours, list[tuple[float, Then, str]]()
        if hours.max_seconds:
            found.append((self._began + hours.max_seconds, "paused", f"--max-seconds {hours.max_seconds:g}"))
        if hours.stop_at:
            at = next_time(wall_time(hours.stop_at, "--stop-at"), self._zone, self._began)
            found.append((at, "paused", f"--stop-at {hours.stop_at} {hours.timezone}"))
        return found

    def _of_the_night(self) -> tuple[bool, tuple[float, Then, str]]:
        hours, now = self._hours, self._clock()
        begin, end = (next_time(wall, self._zone, now) for wall in night_of(hours.night))
        what = f"--night {hours.night} {hours.timezone}"
        # Decided by what comes next, not by the wall time, which occurs twice where clocks go back.
        if end < begin:
            return True, (end, "paused" if hours.by_day == "pause" else "changed", f"{what} is over")
        if hours.by_day == "pause":
            return False, (now, "paused", f"{what} has not begun")
        return False, (begin, "changed", f"{what} begins")


def next_time(wall: WallTime, zone: tzinfo, after: float) -> float:
    """Return the first time after `after` at which clocks in `zone` show `wall`, in Unix seconds.

    A time that clocks skip in spring is read as if they had not gone forward yet; of a time that they show
    twice in autumn, the first counts.
    """
    today = datetime.fromtimestamp(after, zone).date()
    days = (datetime.combine(today + timedelta(days=n), wall, tzinfo=zone) for n in range(3))
    return next(t for t in (day.timestamp() for day in days) if t > after)


def wall_time(text: str, option: str) -> WallTime:
    """`07:45` as a time.

    Raises:
        ValueError: it is not a time; names the option.
    """
    try:
        return datetime.strptime(text, "%H:%M").time()
    except ValueError:
        raise ValueError(f"{option} {text!r}: expected HH:MM, such as 07:45") from None


def night_of(text: str) -> tuple[WallTime, WallTime]:
    """`21:00-08:00` as begin and end.

    Raises:
        ValueError: it is not a time window.
    """
    begin, dash, end = text.partition("-")
    if not dash:
        raise ValueError(f"--night {text!r}: expected HH:MM-HH:MM, such as 21:00-08:00")
    found = wall_time(begin.strip(), "--night"), wall_time(end.strip(), "--night")
    if found[0] == found[1]:
        raise ValueError(f"--night {text!r}: begins when it ends; give two different times")
    return found
