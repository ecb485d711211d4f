"""When a run must stop: `--night`, `--max-seconds`, a signal; when it is night, for `--night-power-watts`.

After the first step beyond that time, rank 0 has all ranks save and end. Times are Unix seconds; times of
day are read in `--timezone`, so that the night of a clock change is an hour longer or shorter, as shown.
Signals that ask a training to stop are noted, and obeyed after a step.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from datetime import time as WallTime
from pathlib import Path
from types import FrameType

from yanmo.options.fields import Options, opt
from yanmo.options.values import zone_of

log = logging.getLogger(__name__)
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
    night: str = opt(
        "",
        "hours of the night, HH:MM-HH:MM, such as 21:00-08:00; outside of them --by-day applies",
        kind="environment",
        often=True,
        trial="",
    )
    by_day: str = opt(
        "pause",
        "outside of --night: pause until the command runs again at night, or train all the same",
        kind="environment",
        choices=("pause", "train"),
    )
    timezone: str = opt("UTC", "time zone of --night, such as Asia/Shanghai", kind="environment")
    when_busy: str = opt(
        "train",
        "what a night does while another training of the channel that was told end or wait is at work: train "
        "beside it, end without one, or wait for it",
        kind="environment",
        choices=("train", "end", "wait"),
    )
    night_power_watts: int = opt(
        0, "--power-watts during --night; 0 is the same as by day", kind="execution", trial=0
    )

    def contradictions(self) -> list[str]:
        """Return the options that contradict each other."""
        zone_of(self.timezone)  # these raise by themselves
        if self.night:
            night_of(self.night)
        if self.night_power_watts and not self.night:
            return ["--night-power-watts applies during --night, which is not given"]
        return []


@dataclass(frozen=True)
class TimeWindow:
    """How long a run may go on."""

    ends_at: float
    """Unix seconds; infinity for never. In a window that is over already, no training is started."""
    reason: str
    """Why it ends, for the log."""


class Hours:
    """The hours of a run that begins when this object is made."""

    def __init__(self, hours: HoursOptions, clock: Clock = time.time) -> None:
        self._hours, self._clock = hours, clock
        self._began = clock()
        self._zone = zone_of(hours.timezone)

    def current(self) -> TimeWindow:
        """Return how long the run may go on, as seen now."""
        hours, ends = self._hours, [(float("inf"), "")]
        if hours.max_seconds:
            ends.append((self._began + hours.max_seconds, f"--max-seconds {hours.max_seconds:g}"))
        if hours.night and hours.by_day == "pause":
            begin, end = self._of_the_night()
            what = f"--night {hours.night} {hours.timezone}"
            is_night = end < begin
            ends.append((end, f"{what} is over") if is_night else (self._clock(), f"{what} has not begun"))
        return TimeWindow(*min(ends, key=lambda end: end[0]))

    @property
    def is_night(self) -> bool:
        """Return whether it is night now; never without --night."""
        if not self._hours.night:
            return False
        # Decided by what comes next, not by the wall time, which occurs twice where clocks go back.
        begin, end = self._of_the_night()
        return end < begin

    @property
    def is_over(self) -> bool:
        """Return whether there is nothing to train now: the hours have not begun, or are over."""
        return self.current().ends_at <= self._clock()

    def _of_the_night(self) -> list[float]:
        """Return when the night begins next, and when it ends next."""
        now = self._clock()
        return [next_time(wall, self._zone, now) for wall in night_of(self._hours.night)]


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


@contextmanager
def stop_file(path: Path) -> Iterator[list[float]]:
    """While inside, SIGTERM, SIGHUP and Ctrl-C create the file that asks the workers to save and end.

    Yields:
        A list that holds the time of the first request, once there was one.
    """

    def note(is_first: bool) -> None:
        if is_first:
            log.info("asked to stop: saving after this step")
        try:
            path.touch()
        except OSError as error:  # an exception in here could end the stage anywhere
            log.warning("%s cannot be written (%s): the workers end without saving", path, error)

    with stop_requests(note) as asked:
        yield asked


@contextmanager
def stop_requests(on_each: Callable[[bool], None] = lambda is_first: None) -> Iterator[list[float]]:
    """While inside, SIGTERM, SIGHUP and Ctrl-C are noted and not obeyed at once.

    An error that ends the inside after one is not followed by another try: who asked waits for this process
    to end, and kills it in the end.

    Args:
        on_each: called at each request, with whether it is the first; an exception in it could end the
            stage anywhere.

    Yields:
        A list that holds the time of the first request, once there was one.
    """
    asked: list[float] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        is_first = not asked
        if is_first:
            asked.append(time.monotonic())
        on_each(is_first)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # a terminal that is gone; nohup ignores it
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, stop)
    try:
        yield asked
    except BaseException:
        if asked:
            from yanmo.common import waiting  # here, as options are read without it

            waiting.end_waits()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
