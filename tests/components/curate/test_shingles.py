from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.curate import shingles
from yanmo.curate.normalize import is_han
from yanmo.curate.shingles import BANDS, band_keys, shingle_hashes

TEXT = st.text(st.sampled_from("天地玄黄宇宙洪荒，\n〇a□𠀀"), max_size=40)


def han(text: str) -> str:
    return "".join(c for c in text if is_han(ord(c)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, max_size=8))
def test_the_compiled_loop_gives_the_keys_of_plain_numpy(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shingles, "has_numba", lambda: False)
        plain = band_keys(texts)
    for fast, slow in zip(band_keys(texts), plain, strict=True):
        assert np.array_equal(fast, slow)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, min_size=1, max_size=8))
def test_keys_depend_on_the_set_of_shingles_alone(texts: list[str]) -> None:
    keys, counts, lacunae = band_keys(texts)
    assert keys.shape == (BANDS, len(texts))
    assert counts.tolist() == [len(han(t)) for t in texts]
    assert lacunae.tolist() == [t.count("□") for t in texts]
    sets = [{han(t)[i : i + 4] for i in range(len(han(t)) - 3)} for t in texts]
    for i, one in enumerate(sets):
        for j, other in enumerate(sets):
            assert np.array_equal(keys[:, i], keys[:, j]) == (one == other)


def test_shingles_do_not_reach_over_the_end_of_a_text() -> None:
    hashes, owner = shingle_hashes(["天地玄", "黄宇宙洪", "天地玄黄宇"])
    assert owner.tolist() == [1, 2, 2] and len(set(hashes.tolist())) == 3


def test_keys_are_the_same_for_ever() -> None:
    keys = band_keys(["白日依山尽，黄河入海流。"])[0]
    assert [hex(k) for k in keys[:2, 0].tolist()] == ["0x68e76e8e", "0x13aebd32"], (
        "the same text gets other keys: raise signing.REVISION and pin the new ones here"
    )
