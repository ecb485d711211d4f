"""A team's cron line in KFP's zone: the same moments, or a refusal."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo_pipelines.cluster.schedules.cron import parse_cron
from yanmo_pipelines.cluster.schedules.zones import kfp_zone, written_in

SINCE = datetime(2026, 11, 23, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("line", "zone", "written"),
    [
        ("0 21 * * *", "Asia/Shanghai", "0 0 13 * * *"),
        ("0 5 * * *", "Asia/Shanghai", "0 0 21 * * *"),
        ("0 5 * * 1-5", "Asia/Shanghai", "0 0 21 * * 0,1,2,3,4"),
        ("0 21 * * 7", "Asia/Shanghai", "0 0 13 * * 0"),
        ("15 21 * * *", "Asia/Kolkata", "0 45 15 * * *"),
        ("0 21 1 * *", "Asia/Shanghai", "0 0 13 1 * *"),
        ("0 21 * * *", "UTC", "0 0 21 * * *"),
        ("30 0 21 * * *", "Etc/GMT-8", "30 0 13 * * *"),
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


@given(st.integers(0, 59), st.integers(0, 23), st.sampled_from(["*", "1-5", "sun", "0,3"]))
def test_the_written_line_fires_at_the_same_moments(minute: int, hour: int, weekday: str) -> None:
    cron = parse_cron(f"{minute} {hour} * * {weekday}")
    written = written_in(cron, "Asia/Shanghai", "UTC", SINCE)
    until = SINCE + 40 * 86400
    there = list(islice(written.between(UTC, SINCE, until), 60))
    assert there == list(islice(cron.between(ZoneInfo("Asia/Shanghai"), SINCE, until), 60)) and there


def test_kfps_zone_is_utc_unless_it_is_said() -> None:
    assert kfp_zone("", None)[0] == "UTC" and kfp_zone("Asia/Shanghai", None)[0] == "Asia/Shanghai"
