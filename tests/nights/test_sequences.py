"""Whatever happens to a night, and in whatever order: nothing is lost, and only the gate moves a champion.

Each night is a real run (short.py says of what), and some are killed. What must hold after each is looked at
from outside, in the store (looker.py). YANMO_NIGHT_SEQUENCES=100 tries so many sequences of up to 20 nights.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from nights.forked import (
    BETTER,
    EMPTY_WINDOW,
    ENDS,
    FAULT,
    KILLED,
    KILLED_EARLY,
    KILLED_LATE,
    WINDOW,
    WORSE,
    Forker,
)
from nights.looker import BEFORE, DOWN, FILTER, LEFT_BY_HAND, LIFT, NEW, NOTHING, RESUME, Looker

SEQUENCES = int(os.environ.get("YANMO_NIGHT_SEQUENCES", "0"))
NIGHTS = st.lists(
    st.tuples(st.sampled_from(BEFORE), st.sampled_from(ENDS)),
    min_size=2,
    max_size=20 if SEQUENCES else 6,
)


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looker]:
    """A channel with a champion."""
    folder = tmp_path_factory.mktemp("nights")
    with Forker(folder / "log.txt") as forker:
        yield Looker.at_first(forker, folder / "first")


@pytest.mark.road
@given(st.booleans(), NIGHTS)
@example(  # given up after three kills; new texts go on by themselves, and a person takes it up again
    False,
    [
        *[(NEW, KILLED_EARLY), (NEW, KILLED_EARLY), (NOTHING, KILLED_EARLY), (NOTHING, BETTER)],
        *[(NOTHING, WORSE), (RESUME, BETTER)],
    ],
)
@example(  # given up by the third run itself; the same again is refused, and goes on once it is taken up
    False, [(NEW, FAULT), (NOTHING, EMPTY_WINDOW), (NOTHING, FAULT), (NOTHING, WORSE), (RESUME, KILLED)]
)
@example(False, [(NEW, KILLED_LATE), *[(NOTHING, KILLED_LATE)] * 3, (NEW, WORSE)])  # trained, never judged
@example(  # set aside for a text that may be read again later, and taken up while another one waits
    False, [(NEW, WINDOW), (DOWN, WORSE), (NEW, WORSE), (LIFT, WINDOW), (RESUME, BETTER)]
)
@example(False, [(NEW, WINDOW), (LEFT_BY_HAND, EMPTY_WINDOW), (RESUME, KILLED), (NOTHING, BETTER)])
@example(False, [(NEW, WINDOW), (FILTER, WINDOW), (NEW, WORSE)])  # a filter that changes no text
@settings(
    max_examples=SEQUENCES or 3,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if SEQUENCES else [])],
)
def test_whatever_happens_nothing_is_lost_and_only_the_gate_moves_the_champion(
    first_night: Looker, is_new: bool, nights: list[tuple[str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        looker = first_night.copied(Path(folder), is_new)
        for before, end in nights:
            looker.night(before, end)
        for _ in range(len(looker.waiting) + 1):  # undisturbed nights: whatever was left is judged
            looker.night(NOTHING, WORSE)
        assert not looker.waiting
