"""Cron lines: against a walk over every minute, and where the clock changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo_pipelines.cluster.schedules.cron import parse_cron, written_in


def numbers(least: int, most: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field, and what it means, made together."""
    whole = range(least, most + 1)
    one = st.integers(least, most)
    steps = st.integers(1, most).map(lambda n: (f"*/{n}", frozenset(whole[::n])))
    ends = st.tuples(one, one, st.integers(1, 9)).map(
        lambda e: (f"{min(e[:2])}-{max(e[:2])}/{e[2]}", frozenset(range(min(e[:2]), max(e[:2]) + 1, e[2])))
    )
    single = one.map(lambda n: (str(n), frozenset({n})))
    some = st.lists(st.one_of(single, ends), min_size=1, max_size=3).map(
        lambda parts: (",".join(p[0] for p in parts), frozenset().union(*(p[1] for p in parts)))
    )
    return st.one_of(st.just(("*", frozenset(whole))), steps, some)


@given(
    numbers(0, 59),
    numbers(0, 23),
    numbers(1, 31),
    numbers(1, 12),
    numbers(0, 6),
    st.datetimes(datetime(2024, 1, 1), datetime(2029, 1, 1)),
)
def test_a_line_fires_in_the_minutes_that_it_names(
    minute: tuple[str, frozenset[int]],
    hour: tuple[str, frozenset[int]],
    day: tuple[str, frozenset[int]],
    month: tuple[str, frozenset[int]],
    weekday: tuple[str, frozenset[int]],
    begin: datetime,
) -> None:
    fields = (minute, hour, day, month, weekday)
    try:
        cron = parse_cron(" ".join(field[0] for field in fields))
    except ValueError as error:
        assert "never fires" in str(error)
        return
    start = begin.replace(second=30, microsecond=0, tzinfo=UTC)
    expected, at = [], start.replace(second=0)
    for _ in range(2 * 24 * 60):
        at += timedelta(minutes=1)
        days = [at.day in day[1], at.isoweekday() % 7 in weekday[1]]
        both = day[0].startswith("*") or weekday[0].startswith("*")
        if (
            at.minute in minute[1]
            and at.hour in hour[1]
            and at.month in month[1]
            and (all if both else any)(days)
        ):
            expected.append(at.timestamp())
    assert list(cron.between(UTC, start.timestamp(), at.timestamp())) == expected


ANSWERS = json.loads((Path(__file__).parent / "cron_answers.json").read_text(encoding="utf-8"))
"""What robfig/cron 1.2.0 (KFP 2.17) gave, 2026-11-23; times are Unix seconds."""


def test_lines_fire_when_kfp_fires_also_where_the_clock_changes() -> None:
    compared = 0
    for said in ANSWERS:
        if said["zone"] == "Australia/Lord_Howe" or isinstance(said["kfp"], str):
            continue
        if len(said["line"].split()) != 5:
            continue
        found = list(parse_cron(said["line"]).between(ZoneInfo(said["zone"]), said["since"], said["until"]))
        assert found == said["kfp"], f"{said['line']} {said['zone']}"
        compared += 1
    assert compared == 55


def test_what_kfp_refuses_is_written_as_it_takes_it_or_refused() -> None:
    refused = {said["line"] for said in ANSWERS if isinstance(said["kfp"], str)}
    assert refused == {"0 0 * * 7", "0 22-2 * * *"}
    assert parse_cron("0 0 * * 7").fields == ("0", "0", "*", "*", "0")
    assert parse_cron("0 0 * * 5-7").fields[4] == "0,5,6"
    with pytest.raises(ValueError, match="exchanged"):
        parse_cron("0 22-2 * * *")


def test_names() -> None:
    since = datetime(2026, 11, 23, 12, tzinfo=UTC)  # a Monday
    for line, first in (
        ("0 21 * * mon-FRI", "2026-11-23T21:00:00+00:00"),
        ("0 21 * * 7", "2026-11-29T21:00:00+00:00"),
        ("0 21 ? jan ?", "2027-01-01T21:00:00+00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00+00:00"),
    ):
        at = next(parse_cron(line).after(UTC, since.timestamp()))
        assert datetime.fromtimestamp(at, UTC).isoformat() == first, line


@pytest.mark.parametrize(
    "line",
    [
        *("", "0 21 * *", "0 21 * * * * *", "60 21 * * *", "0 24 * * *", "0 21 0 * *", "0 21 * 13 *"),
        *(
            "0 21 * * 8",
            "0 5-2 * * *",
            "*/0 * * * *",
            "a b c d e",
            "0 21 31 2 *",
            "0 21 * * mun",
            "0 -1 * * *",
        ),
        *("0 2١ * * *", "0 99999999999999999999 * * *", "\x00 * * * *", "@daily", "0 0 21 * * *"),
    ],
)
def test_what_is_no_cron_line_is_refused_and_quoted(line: str) -> None:
    with pytest.raises(ValueError, match="cron "):
        parse_cron(line)


SINCE = datetime(2026, 11, 23, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("line", "zone", "written"),
    [
        ("0 21 * * *", "Asia/Shanghai", "0 13 * * *"),
        ("0 5 * * *", "Asia/Shanghai", "0 21 * * *"),
        ("0 5 * * 1-5", "Asia/Shanghai", "0 21 * * 0,1,2,3,4"),
        ("0 21 * * 7", "Asia/Shanghai", "0 13 * * 0"),
        ("15 21 * * *", "Asia/Kolkata", "45 15 * * *"),
        ("0 21 1 * *", "Asia/Shanghai", "0 13 1 * *"),
        ("0 21 * * *", "UTC", "0 21 * * *"),
    ],
)
def test_a_line_is_written_in_utc(line: str, zone: str, written: str) -> None:
    assert " ".join(written_in(parse_cron(line), zone, "UTC", SINCE).fields) == written


@pytest.mark.parametrize(
    ("line", "zone", "said"),
    [
        ("0 21 * * *", "Europe/Berlin", "do not change together"),
        ("0 5 1 * *", "Asia/Shanghai", "hours or days begin at other moments"),
        ("0 5,21 * * 1", "Asia/Shanghai", "hours or days begin at other moments"),
        ("0,30 20 * * *", "Asia/Kolkata", "hours or days begin at other moments"),
    ],
)
def test_where_no_line_of_utc_is_the_same_it_is_refused(line: str, zone: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        written_in(parse_cron(line), zone, "UTC", SINCE)
    assert "give times of UTC" in str(refused.value)


LINES = st.tuples(
    st.sampled_from(["0", "59", "0,30", "*"]),
    st.lists(st.integers(0, 23), min_size=1, max_size=3).map(lambda hours: ",".join(map(str, hours))),
    st.sampled_from(["*", "?", "1", "*/2"]),
    st.sampled_from(["*", "2-12"]),
    st.sampled_from(["*", "1-5", "sun", "0,3", "*/2"]),
).map(" ".join)


@given(
    LINES,
    st.sampled_from(["Asia/Shanghai", "Asia/Kolkata", "America/Caracas", "Pacific/Kiritimati"]),
)
def test_the_written_line_fires_at_the_same_moments(line: str, zone: str) -> None:
    cron = parse_cron(line)
    try:
        written = written_in(cron, zone, "UTC", SINCE)
    except ValueError as error:
        assert "cannot be written as one line of UTC" in str(error)
        return
    until = SINCE + 100 * 86400
    there = list(written.between(UTC, SINCE, until))
    assert there == list(cron.between(ZoneInfo(zone), SINCE, until))
