from __future__ import annotations

import errno
import tempfile

import numpy as np
import pytest
from full_disk import no_file_above
from hypothesis import given
from hypothesis import strategies as st

from yanmo.balance.id_file import IdFile


@given(parts=st.lists(st.integers(0, 40), max_size=5), seed=st.integers(0, 99))
def test_ids_come_back_at_any_positions_whatever_was_added_when(parts: list[int], seed: int) -> None:
    generator, whole = np.random.default_rng(seed), np.empty((0, 32), np.uint8)
    file = IdFile.of(whole)
    for number in parts:
        some = generator.integers(0, 256, (number, 32), np.uint8)
        file.add(some)
        whole = np.concatenate([whole, some])
        positions = generator.integers(0, len(whole), 2 * len(whole)) if len(whole) else np.zeros(0, np.int64)
        assert np.array_equal(file.at(positions), whole[positions])


def test_a_full_disk_is_named() -> None:
    with no_file_above(1 << 16), pytest.raises(OSError) as caught:
        IdFile.of(np.zeros((1 << 14, 32), np.uint8))
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert caught.value.filename == tempfile.gettempdir()
