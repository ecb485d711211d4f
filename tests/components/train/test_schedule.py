"""The learning rate is a function of the step."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig
from yanmo.train.schedule import SCHEDULES, Plateau, Schedule, ScheduleOptions, ValidationPatience


def rates(schedule: str, floor: float = 0.0) -> list[float]:
    return of(schedule=schedule, steps=20, warmup_steps=4, floor=floor)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_rises_evenly_to_the_peak(schedule):
    found = rates(schedule)
    assert found[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert max(found) == 1.0


def test_linear_falls_evenly_and_cosine_as_a_cosine_to_the_floor():
    linear, cosine = rates("linear", 0.1), rates("cosine", 0.1)
    steps = [a - b for a, b in pairwise(linear[4:])]
    assert max(steps) == pytest.approx(min(steps))
    assert linear[12] == pytest.approx(0.55) and cosine[12] == pytest.approx(0.55)
    assert cosine[8] > linear[8] and cosine[16] < linear[16]
    assert all(x > 0.1 for x in linear + cosine)
    assert rates("constant")[-1] == 1.0


def of(**settings) -> list[float]:
    options = ScheduleOptions(**{"steps": 100, "warmup_steps": 0, **settings})
    schedule = Schedule(options)
    return [schedule.at(s) for s in range(options.steps)]


def test_wsd_stays_at_the_peak_and_falls_over_the_last_share():
    found = of(schedule="wsd", decay_share=0.25, floor=0.1)
    assert found[:76] == [1.0] * 76
    steps = [a - b for a, b in pairwise(found[75:])]
    assert max(steps) == pytest.approx(min(steps)) and found[-1] == pytest.approx(0.1 + 0.9 / 25)


def test_sgdr_restarts_in_equal_cosines():
    found = of(schedule="sgdr", restart_steps=20)
    assert [s for s in range(100) if found[s] == 1.0] == [0, 20, 40, 60, 80]
    assert found[30] == pytest.approx(0.5) and found[59] < 0.01


def test_sgdr_without_a_length_takes_a_quarter():
    found = of(schedule="sgdr", steps=104, warmup_steps=4)
    assert [s for s in range(104) if found[s] == 1.0] == [4, 29, 54, 79]


def test_patience_ends_after_so_many_validations_without_a_gain():
    patience = ValidationPatience(most=2, min_delta=0.1)
    assert [patience.update(x) for x in (5.0, 4.0, 3.95, 3.8, 3.75, 3.72)] == [False] * 5 + [True]
    assert patience.best == 3.8 and patience.waited == 0
    assert not patience.update(math.nan) and patience.update(math.nan)


def test_a_plateau_lowers_the_rate_down_to_the_floor():
    plateau = Plateau(ValidationPatience(1, 0.0), floor=0.2)
    assert [plateau.update(5.0) for _ in range(5)] == [False, True, True, True, False]
    assert plateau.multiplier == 0.2


@given(st.integers(2, 10_000))
def test_a_training_of_any_length_has_a_warm_up_that_fits(steps: int) -> None:
    options = load(TrainConfig, [f"--steps={steps}"], "yanmo train")
    assert 1 <= options.warmup_steps < steps
    assert options.warmup_steps == min(30, max(1, steps // 15))


def test_a_warm_up_that_is_given_stays_as_it_is() -> None:
    assert load(TrainConfig, ["--steps=300", "--warmup-steps=30"], "yanmo train").warmup_steps == 30
    assert load(TrainConfig, ["--preset=fast"], "yanmo train").warmup_steps == 15
