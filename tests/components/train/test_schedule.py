"""The learning rate is a function of the step."""

from itertools import pairwise

import pytest

from yanmo.train.schedule import multiplier


def rates(schedule: str, floor: float = 0.0) -> list[float]:
    return [multiplier(s, steps=20, warmup_steps=4, schedule=schedule, floor=floor) for s in range(20)]


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
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
