import numpy as np
import pytest

from yanmo.common.bootstrap import generator_for, interval, resampled_sums


def test_sums_are_over_as_many_documents_as_there_are() -> None:
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    sums = resampled_sums(values, 500, generator_for(0, "诗"))
    assert sums.shape == (500, 2)
    assert set(sums[:, 0]) <= {float(n) for n in range(3, 10)}
    np.testing.assert_allclose(sums[:, 1], 10 * sums[:, 0])  # one choice of documents for all measures


def test_their_spread_is_that_of_the_central_limit() -> None:
    values = np.random.default_rng(0).normal(5, 2, (400, 1))
    sums = resampled_sums(values, 4000, generator_for(0, "诗"))
    assert sums.mean() == pytest.approx(values.sum(), rel=0.001)
    assert sums.std() == pytest.approx(values.std() * 20, rel=0.05)


def test_the_size_of_a_chunk_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(5, 2, (50, 2))
    whole = resampled_sums(values, 100, generator_for(0, "诗"))
    monkeypatch.setattr("yanmo.common.bootstrap._CELLS", 300)
    np.testing.assert_array_equal(whole, resampled_sums(values, 100, generator_for(0, "诗")))


def test_each_name_has_draws_of_its_own() -> None:
    first, again, other = (generator_for(3, name).random() for name in ("诗", "诗", "词"))
    assert first == again != other


def test_the_interval_leaves_the_same_share_at_both_ends() -> None:
    assert interval(np.arange(1001.0), 0.95) == pytest.approx((25.0, 975.0))
