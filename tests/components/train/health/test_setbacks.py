"""When skipped steps and rising losses are trouble."""

import math

import pytest

from yanmo.train.health.setbacks import Health, Trouble
from yanmo.train.job import is_calm


def feed(health: Health, losses: list[float], first: int = 1) -> list[Trouble]:
    found = (health.note(first + i, loss, math.isfinite(loss)) for i, loss in enumerate(losses))
    return [trouble for trouble in found if trouble]


def test_single_bad_steps_are_only_skipped():
    assert not feed(Health(3, 2.0), [4.0, math.nan, 4.0, math.inf, math.nan, 4.0] * 20)


def test_bad_steps_in_a_row_are_trouble_from_the_first_of_them():
    trouble = feed(Health(3, 2.0), [4.0, 4.0, math.nan, math.inf, math.nan])
    assert [t.first_step for t in trouble] == [3] and "not finite" in trouble[0].reason


def test_a_finite_loss_whose_gradient_was_not_finite_counts_as_bad():
    health = Health(2, 0.0)
    assert health.note(1, 4.0, moved=False) is None
    assert health.note(2, 4.0, moved=False) == Trouble(
        1, "2 steps in a row had a loss or gradient that is not finite"
    )


def test_a_loss_scale_that_comes_down_is_no_trouble_and_one_that_never_arrives_is():
    health = Health(3, 0.0, halvings=16)
    for first in (1, 100):
        assert not [t for i in range(16) if (t := health.note(first + i, 4.0, moved=False))]
        assert health.note(first + 16, 4.0, moved=True) is None
    assert is_calm({"health": health.state()})
    again = Health(3, 0.0, halvings=16)
    again.restore(health.state())
    found = [again.note(200 + i, 4.0, moved=False) for i in range(19)]
    assert found[:18] == [None] * 18 and found[18] is not None


def test_a_loss_that_is_not_finite_is_counted_at_once_in_fp16_too():
    health = Health(3, 0.0, halvings=16)
    found = [health.note(step, math.nan, moved=False) for step in (1, 2, 3)]
    assert found[:2] == [None, None] and found[2] is not None


def test_a_loss_that_stays_high_is_a_spike_and_a_falling_or_noisy_one_is_not():
    falling = [8 - 0.1 * i + 0.3 * (-1) ** i for i in range(60)]
    assert not feed(Health(3, 2.0), falling)
    assert not feed(Health(3, 2.0), [4.0] * 40 + [9.0, 9.0, 4.0] * 20)
    trouble = feed(Health(3, 2.0), [4.0] * 40 + [4.5, 7.0, 7.0, 8.0, 9.0, 9.5])
    assert trouble[0].first_step == 42


def test_no_limits_mean_no_trouble():
    assert not feed(Health(0, 0.0), [4.0] * 60 + [math.nan] * 60 + [100.0] * 60)


@pytest.mark.parametrize("cut", [10, 41, 43])
def test_a_resumed_watch_sees_the_same_trouble(cut):
    losses = [4.0] * 40 + [7.0] * 6
    whole, first, second = (Health(3, 2.0) for _ in range(3))
    found = feed(first, losses[:cut])
    second.restore(first.state())
    assert feed(whole, losses) == found + feed(second, losses[cut:], first=cut + 1)


def test_a_checkpoint_is_calm_when_it_says_that_its_last_step_went_well():
    health = Health(nonfinite_steps=3, spike_nats=1.0)
    feed(health, [4.0] * 30)
    assert is_calm({"health": health.state()})
    feed(health, [math.nan], 31)
    assert not is_calm({"health": health.state()})
    feed(health, [4.0], 32)
    assert is_calm({"health": health.state()})
    feed(health, [9.0], 33)
    assert not is_calm({"health": health.state()})
    assert not is_calm({}), "it does not say so"
