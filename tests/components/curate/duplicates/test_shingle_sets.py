from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from yanmo.curate.duplicates.shingle_sets import Sets, SetsFile, similarities


@pytest.mark.parametrize("many", [10, 200], ids=["by sorting", "by a compiled loop"])
def test_similarities_are_the_same_with_a_small_window_on_the_sets(tmp_path: Path, many: int) -> None:
    generator = np.random.default_rng(many)
    sizes = generator.integers(0, many * 20, 400)
    sets = [np.unique(generator.integers(0, many * 40, n).astype(np.uint32)) for n in sizes]
    file, starts = SetsFile(tmp_path / "sets"), []
    for one in sets:
        (tmp_path / "one").write_bytes(one.tobytes())
        starts.append(file.append(tmp_path / "one", np.array([len(one)])))
    size = np.array([len(one) for one in sets])
    every = Sets(file.hashes, np.concatenate(starts), size)
    first, second = generator.integers(0, 400, (2, 3000))
    one, other = every.take(first), every.take(second)
    expected = similarities(one, other)
    for window in (1, 5000, 1 << 20):
        assert similarities(one, other, file.pages, window).tolist() == expected.tolist()
    a, b = sets[first[0]], sets[second[0]]
    assert expected[0] == len(np.intersect1d(a, b)) / max(1, len(np.union1d(a, b)))
