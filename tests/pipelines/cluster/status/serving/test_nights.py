"""How a night stands, from what was seen of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo_pipelines.cluster.schedules.cron import parse_cron
from yanmo_pipelines.cluster.status.serving.nights import NIGHT_STATES, Plan, Signs, nights

HOUR = 3600.0
PLAN = Plan(
    cron=parse_cron("0 21 * * *"), zone=UTC, seconds=11 * HOUR, begin_seconds=HOUR / 2, stage="promote"
)
BEGIN = datetime(2026, 11, 22, 21, tzinfo=UTC).timestamp()


def state(signs: Signs, hours: float, known: float | None = None) -> str:
    """Of the night that began at BEGIN, so many hours later."""
    now = BEGIN + hours * HOUR
    seen = now if known is None else BEGIN + known * HOUR
    found = nights(PLAN, signs, now, seen, BEGIN - HOUR)
    return found[-1].state if found else ""


def ended(stage: str, hours: float) -> Signs:
    return Signs(ended=((stage, BEGIN + hours * HOUR),))


@pytest.mark.parametrize(
    ("signs", "hours", "expected"),
    [
        (Signs(), -0.1, ""),
        (Signs(), 0.1, "due"),
        (Signs(), 0.6, "missed"),
        (Signs(), 12, "missed"),
        (ended("promote", -14), 0.6, "missed"),
        (ended("curate", 0.2), 0.6, "begun"),
        (ended("curate", 0.2), 11.1, "failed"),
        (ended("curate", 3), 4, "begun"),
        (ended("promote", 6), 6.1, "met"),
        (ended("promote", 6), 23, "met"),
        (ended("promote", 11.5), 12, "missed"),
        (Signs(works_since=(BEGIN + 60,)), 0.6, "begun"),
        (Signs(works_since=(BEGIN - 5 * HOUR,)), 0.6, "begun"),
        (Signs(works_since=(BEGIN + 60,)), 11.1, "failed"),
        (Signs(paused=(BEGIN + 10.9 * HOUR,)), 12, "paused"),
        (Signs(paused=(BEGIN - 13 * HOUR,)), 0.6, "missed"),
    ],
)
def test_how_a_night_stands(signs: Signs, hours: float, expected: str) -> None:
    assert state(signs, hours) == expected


def test_a_store_that_does_not_answer_makes_no_night_missed_and_none_met() -> None:
    assert state(Signs(), 0.6, known=0.4) == "unknown"
    assert state(Signs(), 0.4, known=0.1) == "due", "it may still begin"
    assert state(ended("curate", 0.2), 12, known=10) == "unknown"
    assert state(ended("curate", 0.2), 5, known=1) == "begun"
    assert state(ended("promote", 6), 12, known=7) == "met", "what is known is known"
    assert state(Signs(works_since=(BEGIN - HOUR,)), 0.6, known=-0.5) == "unknown"


def test_the_newest_fortnight_is_kept_and_nothing_before_the_first_sign() -> None:
    now = BEGIN + 30 * 24 * HOUR
    assert [n.state for n in nights(PLAN, Signs(), now, now, BEGIN - HOUR)] == ["missed"] * 13 + ["due"]
    assert len(nights(PLAN, Signs(), BEGIN + HOUR, BEGIN + HOUR, BEGIN + 1)) == 0
    found = nights(PLAN, ended("promote", 2), now, now, BEGIN - HOUR)
    assert found[-1].begin == now and found[-1].end == now + 11 * HOUR


@given(st.floats(-30, 30), st.floats(-30, 30), st.floats(0, 40), st.floats(0, 40))
def test_no_night_is_missed_after_a_sign_of_it_nor_decided_before_its_time(
    end: float, pause: float, hours: float, behind: float
) -> None:
    signs = Signs(ended=(("promote", BEGIN + end * HOUR),), paused=(BEGIN + pause * HOUR,))
    now = BEGIN + hours * HOUR
    for night in nights(PLAN, signs, now, now - behind * HOUR, BEGIN - HOUR):
        assert night.state in NIGHT_STATES
        inside = [night.begin <= BEGIN + at * HOUR < night.end for at in (end, pause)]
        assert (night.state == "met") == inside[0]
        assert (night.state == "paused") == (inside[1] and not inside[0])
        if night.state == "missed":
            assert now - behind * HOUR >= night.begin + PLAN.begin_seconds
