"""Trials in turns: a winner that is named as certain is the fastest, and what is not certain is said."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.train.supervision import contest as contests
from yanmo.train.supervision.contest import Contest, contest


def machine(true: list[float], noise: float, drift: float, seed: int):
    """Trials on a shared machine: noise of each, a load that wanders, and now and then a hiccup."""
    draw, load = np.random.default_rng(seed), [0.0]

    def measure(number: int) -> float:
        load[0] = 0.8 * load[0] + draw.normal(0, drift)
        hiccup = 0.3 if draw.random() < 0.03 else 0.0
        return true[number] * math.exp(draw.normal(0, noise) + load[0] - hiccup)

    return measure


def held(true: list[float], noise: float, drift: float, seed: int) -> Contest:
    measure = machine(true, noise, drift, seed)
    return contest([[measure(i)] for i in range(len(true))], measure)


@pytest.mark.parametrize(("noise", "drift"), [(0.003, 0.0), (0.03, 0.03), (0.08, 0.05)])
def test_a_winner_reported_as_certain_is_hardly_ever_another_and_one_trial_each_often_is(noise, drift):
    true = [1000.0, 1030.0, 980.0, 1010.0, 700.0]
    found = [held(true, noise, drift, seed) for seed in range(300)]
    certain = [one for one in found if not one.rivals]
    wrong = sum(one.best != 1 for one in certain)
    by_one_trial = sum(max(range(5), key=lambda i: one.speeds[i][0]) != 1 for one in found)
    assert wrong <= 0.03 * len(found)
    # Of those that are not certain the fastest is among the named.
    missed = sum(1 not in (one.best, *one.rivals) for one in found)
    assert missed <= 0.05 * len(found)
    if noise > 0.02:
        assert by_one_trial > 0.3 * len(found)
    else:
        assert len(certain) > 0.5 * len(found), "on a quiet machine it comes to an end"


def test_a_clear_winner_costs_no_second_trial():
    measured = []
    found = contest([[1000.0], [600.0], [0.0]], lambda number: measured.append(number) or 1.0)
    assert (found.best, found.rivals, found.far, measured) == (0, [], [1], [])


def test_equal_settings_are_named_as_not_decided_after_the_last_round():
    found = contest([[1000.0], [1000.0]], lambda number: 1000.0)
    assert (found.best, found.rivals) == (0, [1])
    assert len(found.speeds[0]) == contests.MOST_ROUNDS and found.gain(1) == (1.0, 1.0, 1.0)


def test_a_setting_that_runs_only_at_times_does_not_win():
    found = contest([[1200.0], [1000.0]], lambda number: 0.0 if number == 0 else 1000.0)
    assert (found.best, found.rivals) == (1, [])


def test_rounds_go_forwards_and_backwards_so_that_a_machine_that_warms_up_favours_nobody():
    order = []
    contest([[10.0], [10.0], [10.0]], lambda number: order.append(number) or 10.0)
    assert order[:6] == [2, 1, 0, 0, 1, 2]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=6), st.data())
def test_any_speeds_end_with_a_winner_that_ran_where_any_did(first, data):
    def measure(number: int) -> float:
        return data.draw(st.one_of(st.just(0.0), st.floats(1e-3, 1e7)))

    found = contest([[speed] for speed in first], measure)
    assert found.best not in found.rivals
    assert all(len(values) <= contests.MOST_ROUNDS for values in found.speeds)
    if any(first):
        assert found.speeds[found.best][0]
