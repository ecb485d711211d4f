from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.common.hash_set import HashSet

# Equal low bits, so that the table alone would not tell them apart.
NUMBERS = st.lists(st.builds(lambda a, b: a << 30 | b, st.integers(0, 3), st.integers(0, 5)), max_size=20)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(NUMBERS, NUMBERS)
def test_what_is_found_is_what_is_in_the_set(held: list[int], others: list[int]) -> None:
    for kind in (np.uint32, np.uint64):
        found = HashSet(np.array(held, dtype=kind)).find(np.array(others, dtype=kind))
        assert found.tolist() == [i for i, other in enumerate(others) if other in held]
