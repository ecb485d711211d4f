"""A rank of a training, in this process."""

from __future__ import annotations

import pytest

from yanmo.options.values import MOST_EXACT


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize(("seed", "drawn_from"), [(7, 7_000_021), (MOST_EXACT, None)])
def test_a_seed_may_be_the_largest_that_the_option_takes(seed: int, drawn_from: int | None, train) -> None:
    """A million times it is more than the 64 bits that torch takes; small ones are what they were."""
    import torch

    assert train("a", steps=1, warmup_steps=0, backend="torch", seed=seed).state == "done"
    assert drawn_from is None or torch.initial_seed() == drawn_from
