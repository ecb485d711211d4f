"""When a run stops, with a clock that the test sets."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from yanmo.train.time_window import Hours, HoursOptions, next_time, wall_time

SHANGHAI = "Asia/Shanghai"
NEW_YORK = "America/New_York"
HOUR = 3600.0


class Clock:
    """Unix seconds that a test sets by wall time."""

    def __init__(self, zone: str, text: str) -> None:
        self.zone = ZoneInfo(zone)
        self.set(text)

    def set(self, text: str, fold: int = 0) -> None:
        self.now = datetime.fromisoformat(text).replace(tzinfo=self.zone, fold=fold).timestamp()

    def __call__(self) -> float:
        return self.now

    def shown(self, at: float) -> str:
        return datetime.fromtimestamp(at, self.zone).strftime("%m-%d %H:%M")


def night(**options) -> HoursOptions:
    return HoursOptions(night="21:00-08:00", timezone=SHANGHAI, **options)


def test_without_hours_a_run_never_has_to_stop():
    window = Hours(HoursOptions(), Clock("UTC", "2026-11-21 12:00")).current()
    assert (window.ends_at, window.reason) == (float("inf"), "")


@pytest.mark.parametrize(
    ("began", "ends"),
    [("21:30", "11-22 08:00"), ("00:10", "11-21 08:00"), ("07:59", "11-21 08:00"), ("21:00", "11-22 08:00")],
)
def test_a_run_begun_at_night_pauses_at_its_end(began, ends):
    clock = Clock(SHANGHAI, f"2026-11-21 {began}")
    hours = Hours(night(), clock)
    assert hours.is_night and not hours.is_over
    assert clock.shown(hours.current().ends_at) == ends and hours.current().reason.endswith("is over")


@pytest.mark.parametrize("began", ["08:00", "12:00", "20:59"])
def test_a_run_begun_by_day_pauses_at_once(began):
    clock = Clock(SHANGHAI, f"2026-11-21 {began}")
    hours = Hours(night(), clock)
    assert hours.is_over and hours.current().ends_at <= clock()
    assert "has not begun" in hours.current().reason


def test_a_run_that_trains_by_day_too_knows_when_it_is_night():
    clock = Clock(SHANGHAI, "2026-11-21 12:00")
    hours = Hours(night(by_day="train"), clock)
    assert not hours.is_night and hours.current().ends_at == float("inf")
    clock.set("2026-11-21 21:00")
    assert hours.is_night and hours.current().ends_at == float("inf")
    clock.set("2026-11-22 08:00")
    assert not hours.is_night and not hours.is_over


def test_a_night_within_one_day_needs_no_midnight():
    clock = Clock(SHANGHAI, "2026-11-21 02:00")
    hours = Hours(HoursOptions(night="01:00-05:00", timezone=SHANGHAI), clock)
    assert hours.is_night and clock.shown(hours.current().ends_at) == "11-21 05:00"


def test_the_zone_decides_not_the_machines_clock():
    clock = Clock("UTC", "2026-11-21 14:00")  # 22:00 in Shanghai
    assert Hours(night(), clock).is_night
    assert not Hours(HoursOptions(night="21:00-08:00", timezone="UTC"), clock).is_night


def test_the_earliest_end_wins_and_counts_from_the_start_of_the_run():
    clock = Clock(SHANGHAI, "2026-11-21 22:00")
    began = clock()
    first = Hours(night(max_seconds=12 * HOUR), clock).current()
    assert clock.shown(first.ends_at) == "11-22 08:00" and "--night" in first.reason
    short = Hours(night(max_seconds=HOUR), clock)
    assert short.current().ends_at == began + HOUR
    clock.now += 2 * HOUR  # over, and no later start of workers makes it longer
    assert short.current().ends_at < clock() and short.is_over and "--max-seconds" in short.current().reason


def test_a_night_is_an_hour_shorter_or_longer_when_the_clocks_change():
    def length(day: str) -> float:
        clock = Clock(NEW_YORK, f"{day} 21:00")
        return Hours(HoursOptions(night="21:00-08:00", timezone=NEW_YORK), clock).current().ends_at - clock()

    assert length("2026-03-07") == 10 * HOUR
    assert length("2026-10-31") == 12 * HOUR
    assert length("2026-06-01") == 11 * HOUR


def test_a_night_that_ended_in_the_hour_shown_twice_does_not_begin_again():
    clock = Clock(NEW_YORK, "2026-11-01 01:10")
    hours = Hours(HoursOptions(night="21:00-01:30", timezone=NEW_YORK), clock)
    assert hours.is_night
    clock.set("2026-11-01 01:10", fold=1)
    assert not hours.is_night


def test_a_time_that_the_clocks_skip_comes_at_the_moment_of_the_change():
    zone = ZoneInfo(NEW_YORK)
    before = datetime(2026, 3, 8, 1, 0, tzinfo=zone).timestamp()
    at = next_time(wall_time("02:30", "--night"), zone, before)
    assert datetime.fromtimestamp(at, zone).strftime("%H:%M") == "03:30"
    assert at - before == 1.5 * HOUR


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"night": "7.45-08:00"}, "--night '7.45': expected HH:MM"),
        ({"night": "25:00-08:00"}, "--night"),
        ({"night": "21:00"}, "--night '21:00': expected HH:MM-HH:MM"),
        ({"night": "21:00-24:00"}, "--night"),
        ({"night": "21:00-21:00"}, "begins when it ends"),
        ({"timezone": "Mars/Olympus"}, "--timezone 'Mars/Olympus'"),
        ({"timezone": "../../etc/passwd"}, "--timezone"),
    ],
)
def test_wrong_hours_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        HoursOptions(**options)
