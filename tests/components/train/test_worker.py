"""A rank of a training, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from yanmo.options.values import MOST_EXACT
from yanmo.store.opening import open_store
from yanmo.store.pointers import read_pointer
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize(("seed", "drawn_from"), [(7, 7_000_021), (MOST_EXACT, None)])
def test_a_seed_may_be_the_largest_that_the_option_takes(
    seed: int, drawn_from: int | None, store: Path, tmp_path: Path, tiny: Mapping[str, int | str]
) -> None:
    """A million times it is more than the 64 bits that torch takes; small ones are what they were."""
    import torch

    from yanmo.train import worker

    reference = read_pointer(open_store(str(store)), "dev", "tokenize")
    options = TrainConfig(**{**tiny, "steps": 1, "warmup_steps": 0, "backend": "torch", "seed": seed})
    assert worker.train_rank(WorkerJob(options, str(store), reference, None, tmp_path), 0).state == "done"
    assert drawn_from is None or torch.initial_seed() == drawn_from
