"""Large arrays of a corpus: what numpy gives, without their memory."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from processes import no_file_above

from yanmo.common.disk_arrays import (
    group_starts,
    groups_of,
    joined_arrays,
    new_array,
    numbers_where,
    picked,
    release_pages,
    sorted_order,
    taken,
    tied,
)

SEEDS = st.integers(0, 2**32 - 1)


def some_keys(seed: int, count: int) -> list[NDArray[Any]]:
    """Keys of four kinds, with few values or many: numbers, whether, digests."""
    generator = np.random.default_rng(seed)
    number = generator.integers(0, generator.choice([1, 3, 50, 10**9]), count).astype(np.int32)
    words = generator.integers(0, generator.choice([1, 2, 2**60]), (count, 2))
    kinds = [number, generator.random(count) < 0.5, -number, words.view("S16")[:, 0] if count else number]
    chosen = generator.permutation(4)[: generator.integers(1, 5)]
    return [kinds[i] for i in chosen]


@given(seed=SEEDS, count=st.integers(0, 600), at_a_time=st.sampled_from([64, 100, 257]))
def test_rows_are_sorted_as_lexsort_sorts_them(seed: int, count: int, at_a_time: int) -> None:
    keys = some_keys(seed, count)
    found = sorted_order(lambda some: [key[some] for key in keys], count, at_a_time)
    assert np.array_equal(found, np.lexsort(keys))
    assert found.dtype == np.int32


def test_a_key_that_is_the_same_in_all_rows_makes_no_large_part() -> None:
    count, asked = 100_000, []

    def keys(some: Any) -> list[NDArray[Any]]:
        asked.append(len(np.arange(count)[some]))
        return [np.zeros(asked[-1], np.int8)]

    assert np.array_equal(sorted_order(keys, count, 4096), np.arange(count))
    assert max(asked) <= 4096


@given(seed=SEEDS, count=st.integers(0, 400))
def test_groups_of_equal_keys_are_numbered_in_their_order(seed: int, count: int) -> None:
    values = np.random.default_rng(seed).integers(0, max(1, count // 2), count)
    order = sorted_order(lambda some: [values[some]], count)
    is_new = group_starts(lambda some: [values[some]], order)
    assert np.array_equal(groups_of(order, is_new), np.unique(values, return_inverse=True)[1])
    number = np.bincount(values, minlength=1)[values[order]]
    assert np.array_equal(tied(is_new), np.flatnonzero(number > 1))


@given(seed=SEEDS, count=st.integers(0, 400))
def test_rows_are_chosen_as_numpy_chooses_them(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    values, holds = generator.integers(0, 2**40, count), generator.random(count) < generator.random()
    assert np.array_equal(numbers_where(lambda some: holds[some], count), np.flatnonzero(holds))
    assert np.array_equal(picked(values, holds), values[holds])
    index = generator.integers(0, count, 2 * count) if count else np.zeros(0, np.int64)
    assert np.array_equal(taken(values, index), values[index])
    cuts = np.sort(generator.integers(0, count + 1, 3))
    assert np.array_equal(joined_arrays(np.split(values, cuts)), values)


@pytest.mark.parametrize("in_memory", [0, 1 << 30])
def test_an_array_holds_what_is_written_to_it(in_memory: int) -> None:
    found = new_array(100_000, np.int32, in_memory)
    assert not found.any()
    found[:] = np.arange(100_000)
    release_pages()
    assert np.array_equal(found, np.arange(100_000))


def test_a_full_disk_is_named_before_anything_is_written() -> None:
    with no_file_above(1 << 16), pytest.raises(OSError) as caught:
        new_array(1 << 17, np.uint8, in_memory=0)
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert caught.value.filename == tempfile.gettempdir()


GROWTH = """
import numpy as np
from pathlib import Path
from yanmo.common.disk_arrays import new_array, release_pages, slices, sorted_order, taken
def megabytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    kinds = ("RssAnon", "RssFile", "RssShmem")
    return sum(int(line.split()[1]) for line in lines if line.startswith(kinds)) / 1024
count = 1 << 22
before = megabytes()
numbers = new_array(count, np.uint64)
for some in slices(count):
    numbers[some] = np.arange(some.start, some.stop) * 2654435761 % 4294967296
order = sorted_order(lambda some: [numbers[some]], count)
ordered = taken(numbers, order)
release_pages()
print(megabytes() - before)
assert (ordered[1:] > ordered[:-1]).all()
"""


def test_what_stays_of_large_arrays_is_not_in_memory() -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 20  # the three arrays hold 84 MB
