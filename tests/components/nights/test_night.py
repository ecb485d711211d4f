"""A night's date, and what of anybody's text is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from yanmo.nights.night import Row, night_date, plain
from yanmo.store.objects import as_part

SHANGHAI = ZoneInfo("Asia/Shanghai")


def at(text: str, zone: ZoneInfo = SHANGHAI) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(
    ("began", "hours", "date"),
    [
        ("2026-11-23T21:00", "21:00-08:00", "2026-11-23"),
        ("2026-11-24T02:00", "21:00-08:00", "2026-11-23"),
        ("2026-11-24T07:59", "21:00-08:00", "2026-11-23"),
        ("2026-11-24T08:00", "21:00-08:00", "2026-11-24"),  # by day: the day it began
        ("2026-11-24T02:00", "", "2026-11-24"),
        ("2026-11-24T02:00", "01:00-05:00", "2026-11-24"),
        ("2027-01-01T00:30", "21:00-08:00", "2026-12-31"),
    ],
)
def test_a_night_has_the_date_of_its_evening(began: str, hours: str, date: str) -> None:
    assert night_date(at(began), SHANGHAI, hours) == date


def test_the_date_is_that_of_the_teams_zone() -> None:
    began = at("2026-11-23T21:00")
    assert night_date(began, UTC) == "2026-11-23"
    assert night_date(began, ZoneInfo("Pacific/Kiritimati")) == "2026-11-24"


def test_a_night_of_a_changed_clock_keeps_its_date() -> None:
    berlin = ZoneInfo("Europe/Berlin")  # 2026-10-25 03:00 becomes 02:00
    for hour in ("2026-10-24T23:00", "2026-10-25T02:30", "2026-10-25T07:00"):
        assert night_date(at(hour, berlin), berlin, "21:00-08:00") == "2026-10-24"


@pytest.mark.parametrize("run_id", ["../../x", "a/b", "行", "", "a" * 500, "-"])
def test_a_runs_id_is_one_part_of_a_name(run_id: str) -> None:
    part = as_part(run_id)
    assert part and "/" not in part and part.isascii() and len(part) <= 100
    assert as_part(part) == part, "a name of its own"


def test_two_runs_never_share_a_name() -> None:
    ids = ["行", "诗", "a/b", "a-b", "a" * 100, "a" * 101, "", "-"]
    assert len({as_part(one) for one in ids}) == len(ids)


def test_no_text_steers_or_breaks_what_shows_it() -> None:
    hostile = "a\x00\u202eb\ud800\ufffe\uffffc" + "长" * 10_000
    shown = plain(hostile, 50)
    assert len(shown) == 50 and shown.isprintable()
    shown.encode()


@pytest.mark.parametrize("wrong", [{"date": "2026-13-01"}, {"date": "../x"}, {"state": "won"}])
def test_what_is_no_row_is_refused(wrong: dict[str, str]) -> None:
    good = {"date": "2026-11-23", "run_id": "r", "began": "2026-11-23T13:00:00+00:00", "state": "failed"}
    assert Row(**good).name == "2026-11-23-r"
    with pytest.raises(ValueError):
        Row(**{**good, **wrong})
