"""Which positions compute the logits of frequent tokens alone."""

from __future__ import annotations

import numpy as np
import pytest

from yanmo.formats.packing_settings import Packing
from yanmo.formats.token_cache import TokenCache
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.data import Samples
from yanmo.train.frequent_tokens import DRAWN, NEAR, WHOLE


@pytest.fixture(scope="module")
def cache(store_template) -> TokenCache:
    store = open_store(str(store_template))
    return TokenCache.open(open_reference(store, read_pointer(store, "dev", "tokenize")))


def samples(cache: TokenCache, seed: int = 1, count: int = 40) -> Samples:
    return Samples(cache, packing=Packing(context=32), seed=seed, tag_share=0.5, pad=2, frequent=count)


def test_frequent_tokens_are_those_that_occur_most_often(cache):
    found = samples(cache).frequent
    counts = np.bincount(cache.tokens[0], minlength=cache.vocab_size)
    frequent, rare = found.order[:40], found.order[40:]
    assert sorted(found.order.tolist()) == list(range(cache.vocab_size))
    assert counts[frequent].min() >= counts[rare].max()
    assert found.covered == counts[frequent].sum() / counts.sum()


def test_rare_targets_compute_all_logits_and_a_share_of_the_others_does(cache):
    found = samples(cache)
    batch = found.batch(0, 400)
    is_frequent = np.isin(batch.targets_BT, found.frequent.order[:40])
    with_target = batch.targets_BT >= 0
    assert (batch.kinds_BT[with_target & ~is_frequent] == WHOLE).all()
    assert (batch.kinds_BT[~with_target] == NEAR).all()
    of_frequent = batch.kinds_BT[is_frequent]
    assert set(of_frequent.tolist()) == {NEAR, DRAWN}
    assert abs((of_frequent == DRAWN).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / len(of_frequent))


def test_the_draw_depends_on_seed_sample_and_position_alone(cache):
    whole, again = samples(cache).batch(0, 24), samples(cache)
    parts = [again.batch(first, 4) for first in (20, 0, 8, 4, 16, 12)]
    found = np.concatenate([parts[i].kinds_BT for i in (1, 3, 2, 5, 4, 0)])
    assert (found == whole.kinds_BT).all()
    assert (whole.rows(8, 12).kinds_BT == whole.kinds_BT[8:12]).all()
    later, other = samples(cache).batch(24, 24), samples(cache, seed=2).batch(0, 24)
    for different in (later, other):
        assert (different.kinds_BT == DRAWN).any() and (different.kinds_BT != whole.kinds_BT).any()


def test_a_vocabulary_that_is_no_larger_has_no_rare_tokens(cache):
    assert samples(cache, count=cache.vocab_size).batch(0, 4).kinds_BT is None
