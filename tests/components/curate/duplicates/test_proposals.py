from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.common.hash_set import distinct
from yanmo.curate.duplicates.proposals import pairs_of_keys, propose
from yanmo.curate.duplicates.shingle_sets import ShingleSets, make_pairs, similarities
from yanmo.curate.duplicates.shingles import SHINGLE
from yanmo.curate.duplicates.signing import BAND_COLUMNS, SIGNED
from yanmo.curate.duplicates.sorted_runs import merged, write_array
from yanmo.curate.plan import Candidates


def candidates(files: list[int], seed: int) -> Candidates:
    """Documents in so many rows of each file, some of them too short to be compared."""
    count, generator = sum(files), np.random.default_rng(seed)
    numbers = np.zeros(count, np.int32)
    return Candidates(
        starts=np.cumsum([0, *files]),
        ids=np.arange(count, dtype=np.int32),
        genre=numbers,
        genres=("诗",),
        group=None,
        characters=numbers,
        is_long=generator.integers(2, 30, count) >= SHINGLE,
        ranks=generator.permutation(np.arange(count, dtype=np.int32)),
    )


def write_keys(folder: Path, files: list[int], keys: Any) -> list[Path]:
    """Files of keys, shape (documents, bands)."""
    paths, start = [], 0
    for number, rows in enumerate(files):
        of_file = keys[start : start + rows]
        columns = [pa.array(np.zeros(rows, np.int32))] * 2
        columns += [pa.array(np.ascontiguousarray(band)) for band in of_file.T]
        paths.append(folder / f"signed-{number}.parquet")
        pq.write_table(pa.table(columns, schema=SIGNED), paths[-1])
        start += rows
    return paths


@pytest.mark.long
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.integers(0, 60), min_size=1, max_size=4).filter(any),
    spread=st.sampled_from([3, 40, 2**32]),
    per_bucket=st.sampled_from([1, 7, 30, 1000]),
    seed=st.integers(0, 99),
)
def test_pairs_are_the_same_however_many_buckets_they_are_found_in(
    tmp_path: Path, files: list[int], spread: int, per_bucket: int, seed: int
) -> None:
    table, generator = candidates(files, seed), np.random.default_rng(seed)
    keys = generator.integers(0, spread, (len(table), len(BAND_COLUMNS)), dtype=np.uint64)
    keys = (keys * np.uint64(2**32 // spread)).astype(np.uint32)
    signed = write_keys(tmp_path, files, keys)
    unique = generator.permutation(len(table))[: max(1, len(table) * 3 // 4)]
    positions = np.flatnonzero(table.is_long[unique])
    whole = [
        pairs_of_keys(band[unique[positions]], positions, table.ranks[unique[positions]]) for band in keys.T
    ]
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    runs = propose(scratch, signed, table, unique, 1, per_bucket)
    found = np.concatenate([np.zeros(0, np.uint64), *merged(runs, 50)])
    assert found.tolist() == distinct(np.concatenate(whole)).tolist()
    left = {path.name for path in scratch.iterdir()} - {"position", "rank"}
    assert left == {run.name for run in runs}, "a bucket was left behind"


@pytest.mark.parametrize("many", [10, 200], ids=["by sorting", "by a compiled loop"])
def test_similarities_are_the_same_with_a_small_window_on_the_sets(tmp_path: Path, many: int) -> None:
    generator, path = np.random.default_rng(many), tmp_path / "sets"
    sizes = generator.integers(0, many * 20, 400)
    sets = [np.unique(generator.integers(0, many * 40, n).astype(np.uint32)) for n in sizes]
    for one in sets:
        write_array(path, one, "ab")
    size = np.array([len(one) for one in sets], np.int32)
    mapped = ShingleSets.mapped(path, np.cumsum(size) - size, size)
    pairs = make_pairs(generator.integers(0, 400, 3000), generator.integers(0, 400, 3000))
    expected = similarities(pairs, dataclasses.replace(mapped, pages=None))
    for window in (1, 5000, 1 << 20):
        windowed = dataclasses.replace(mapped, window_bytes=window)
        assert similarities(pairs, windowed).tolist() == expected.tolist()
    first, second = sets[int(pairs[0]) >> 32], sets[int(pairs[0]) & 0xFFFFFFFF]
    either = max(1, len(np.union1d(first, second)))
    assert expected[0] == len(np.intersect1d(first, second)) / either
