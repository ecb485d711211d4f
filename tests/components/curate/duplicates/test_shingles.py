from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.curate.duplicates import shingles
from yanmo.curate.duplicates.shingles import BANDS, band_keys, shingle_hashes
from yanmo.curate.text.normalize import is_han

TEXT = st.text(st.sampled_from("天地玄黄宇宙洪荒，\n〇□𠀀"), max_size=40)


def han(text: str) -> str:
    return "".join(c for c in text if is_han(ord(c)))


PROCESS = """
import sys
from yanmo.curate.duplicates.shingles import band_keys
texts = ["".join(chr(0x4E00 + (i * j) % 999) for j in range(i % 300)) for i in range(600)]
sys.stdout.buffer.write(band_keys(texts)[0].tobytes())
"""


def keys_of_a_process(**environment: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-c", PROCESS], check=True, capture_output=True, env={**os.environ, **environment}
    ).stdout


def test_keys_do_not_depend_on_process_processor_or_threads() -> None:
    """The scalar kernel is what a processor without AVX2 runs: another machine, as far as rensa sees."""
    usual = keys_of_a_process(PYTHONHASHSEED="0")
    assert len(usual) == 4 * BANDS * 600
    assert usual == keys_of_a_process(PYTHONHASHSEED="1", RENSA_FORCE_KERNEL="scalar", RAYON_NUM_THREADS="1")
    assert usual == keys_of_a_process(RENSA_FORCE_KERNEL="avx2", RAYON_NUM_THREADS="3")


def test_keys_do_not_depend_on_the_texts_signed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["天地玄黄宇宙洪荒"[: i % 9] + chr(0x4E00 + i) for i in range(30)]
    together = band_keys(texts)[0]
    monkeypatch.setattr(shingles, "_BATCH", 7)
    assert np.array_equal(together, band_keys(texts)[0])
    assert np.array_equal(together, np.concatenate([band_keys([t])[0] for t in texts], axis=1))
    assert band_keys([])[0].shape == (BANDS, 0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, min_size=1, max_size=8))
def test_keys_depend_on_the_set_of_shingles_alone(texts: list[str]) -> None:
    keys, counts = band_keys(texts)
    assert keys.shape == (BANDS, len(texts))
    assert counts.tolist() == [len(han(t)) for t in texts]
    sets = [{han(t)[i : i + 4] for i in range(len(han(t)) - 3)} for t in texts]
    for i, one in enumerate(sets):
        for j, other in enumerate(sets):
            assert np.array_equal(keys[:, i], keys[:, j]) == (one == other)


def test_shingles_do_not_reach_over_the_end_of_a_text() -> None:
    hashes, owner = shingle_hashes(["天地玄", "黄宇宙洪", "天地玄黄宇"])
    assert owner.tolist() == [1, 2, 2] and len(set(hashes.tolist())) == 3


def test_keys_are_the_same_for_ever() -> None:
    keys = band_keys(["白日依山尽，黄河入海流。"])[0]
    assert [hex(k) for k in keys[:2, 0].tolist()] == ["0xfa96c8c6", "0xf57b3bed"], (
        "the same text gets other keys: raise mapping.REVISION and pin the new ones here"
    )
