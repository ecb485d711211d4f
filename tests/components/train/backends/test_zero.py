"""DeepSpeed's configuration, as far as its size decides."""

from __future__ import annotations

import pytest

from yanmo.train.backends.zero import engine_config, fit_buckets
from yanmo.train.config import TrainConfig


@pytest.mark.parametrize(("elements", "held"), [(4_300_000, 4_300_000), (7_000_000_000, 500_000_000)])
def test_the_bucket_is_no_larger_than_the_gradient(elements, held):
    made = engine_config(TrainConfig())
    fit_buckets(made, elements, 2)
    assert made["zero_optimization"]["reduce_bucket_size"] == held


@pytest.mark.parametrize(
    ("ranks", "stage", "scatters"), [(1, 1, False), (1, 2, False), (1, 3, True), (2, 1, True)]
)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_one_rank_scatters_nothing_and_in_fp32_copies_nothing(ranks, stage, scatters, precision):
    options = TrainConfig(zero_stage=stage, precision=precision, backend="deepspeed")
    made = engine_config(options)
    fit_buckets(made, 10, ranks, options.updates_in_place)
    assert made["zero_optimization"].get("reduce_scatter", True) is scatters
    copies = scatters or precision != "fp32"
    assert made["zero_optimization"].get("contiguous_gradients", True) is copies
