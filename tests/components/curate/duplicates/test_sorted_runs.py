from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.curate.duplicates.sorted_runs import merged, read_array, write_array

RUNS = st.lists(st.sets(st.integers(0, 2**64 - 1) | st.integers(0, 40), max_size=30), max_size=6)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RUNS, st.integers(1, 40))
def test_runs_are_read_back_rising_and_each_number_once(
    tmp_path: Path, runs: list[set[int]], at_a_time: int
) -> None:
    paths = []
    for number, run in enumerate(runs):
        paths.append(tmp_path / f"{number}")
        write_array(paths[-1], np.array(sorted(run), np.uint64))
    blocks = list(merged(paths, at_a_time))
    assert [n for block in blocks for n in block.tolist()] == sorted(set().union(*runs))
    assert all(0 < len(block) <= max(at_a_time, len(runs)) for block in blocks)


def test_a_part_of_a_file_is_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_array(path, np.arange(5, dtype=np.int32))
    write_array(path, np.arange(5, 9, dtype=np.int32)[::2], "ab")
    assert read_array(path, np.int32).tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert read_array(path, np.int32, 2, 4).tolist() == [2, 3, 4, 5]
    assert read_array(path, np.int32, 7, 0).tolist() == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_said_with_its_number_and_the_file() -> None:
    with pytest.raises(OSError) as raised:
        write_array(Path("/dev/full"), np.zeros(100_000, np.uint64), "ab")
    assert raised.value.errno == errno.ENOSPC and raised.value.filename == "/dev/full"
