"""Means over seeds and their intervals."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo_pipelines.sweep.spread import mean_of, students_t

_BITS = st.floats(0.5, 30, allow_nan=False)


@pytest.mark.parametrize(
    ("freedom", "reaches"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (3, 3.1824),
        (4, 2.7764),
        (5, 2.5706),
        (10, 2.2281),
        (29, 2.0452),
        (999, 1.9623),
    ],
)
def test_students_t_is_that_of_the_tables(freedom: int, reaches: float) -> None:
    assert students_t(freedom) == pytest.approx(reaches, abs=5e-5)


@given(st.lists(_BITS, min_size=2, max_size=30), st.floats(-5, 5), st.floats(0.1, 10))
def test_the_interval_moves_and_grows_with_the_values(
    values: list[float], shift: float, factor: float
) -> None:
    found, moved = mean_of(values), mean_of([factor * value + shift for value in values])
    assert found and moved and found.half_width is not None and moved.half_width is not None
    assert found.value == pytest.approx(statistics.fmean(values))
    own = students_t(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    assert found.half_width == pytest.approx(own, abs=1e-9)
    assert moved.value == pytest.approx(factor * found.value + shift, abs=1e-9)
    assert moved.half_width == pytest.approx(factor * found.half_width, abs=1e-9)


def test_one_value_has_no_spread_and_none_has_no_mean() -> None:
    one = mean_of([7.5])
    assert one and (one.value, one.number, one.half_width, one.low, one.high) == (7.5, 1, None, None, None)
    assert mean_of([]) is None
