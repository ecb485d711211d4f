"""The norm of a gradient is that of float64, however long the gradient is."""

from __future__ import annotations

import math

import pytest
import torch

from yanmo.train.backends.engine import norm_of

SIZES = [[1], [4095], [4096], [4097], [37_000, 3], [3_000_000], [5, 4096, 1_500_000, 1]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_that_of_float64(sizes, threads):
    generator = torch.Generator().manual_seed(len(sizes) + threads)
    parts = [torch.randn(size, generator=generator) * 1e-3 for size in sizes]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = norm_of(parts)
    finally:
        torch.set_num_threads(before)
    assert found.dtype == torch.float32 and found.ndim == 0
    assert float(found) == pytest.approx(float(torch.cat(parts).double().norm()), rel=1e-6)


def test_a_matrix_counts_as_its_elements():
    matrix = torch.arange(60_000, dtype=torch.float32).view(300, 200)
    assert float(norm_of([matrix.T])) == pytest.approx(float(matrix.double().norm()), rel=1e-6)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("at", [0, 4096, 9999])
def test_what_is_not_finite_stays_so(value, at):
    gradient = torch.ones(10_000)
    gradient[at] = value
    assert not math.isfinite(float(norm_of([torch.ones(3), gradient])))
