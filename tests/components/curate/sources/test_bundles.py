from __future__ import annotations

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.curate.sources.listing import MANY_SMALL, SMALL_BYTES, Source, bundles


@settings(deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 200, SMALL_BYTES - 1, SMALL_BYTES, 1 << 24]), max_size=400),
    seed=st.integers(0, 5),
)
def test_bundles_hold_every_file_once_in_order_and_large_ones_alone(sizes: list[int], seed: int) -> None:
    files = [
        Source(
            uri=f"file:///{i}.txt",
            name=f"{i}.txt",
            form="txt",
            compression="",
            bytes=size,
            version="1",
            sha256=hashlib.sha256(f"{seed} {i}".encode()).hexdigest(),
        )
        for i, size in enumerate(sizes)
    ]
    found = bundles(files)
    assert [one for bundle in found for one in bundle] == files and all(found)
    assert all(len(bundle) == 1 or all(one.bytes < SMALL_BYTES for one in bundle) for bundle in found)
    if len([size for size in sizes if size < SMALL_BYTES]) <= MANY_SMALL:
        assert len(found) == len(files)
