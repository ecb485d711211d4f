"""Random token replacement: which tokens, how many, and always the same."""

from __future__ import annotations

import numpy as np
import pytest

from yanmo.formats.packing_settings import Packing
from yanmo.formats.token_cache import TokenCache
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.config import TrainConfig
from yanmo.train.data import Samples


@pytest.fixture(scope="module")
def cache(store_template) -> TokenCache:
    store = open_store(str(store_template))
    return TokenCache.open(open_reference(store, read_pointer(store, "dev", "tokenize")))


def samples(cache, **changes) -> Samples:
    return Samples(
        cache, **{"packing": Packing(context=32), "seed": 1, "tag_share": 0.5, "pad": 2, **changes}
    )


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_share_of_fed_tokens_is_replaced_and_nothing_else_changes(share, cache):
    plain = samples(cache)
    rows = len(plain.plan(0))
    before, after = plain.batch(0, rows), samples(cache, noise_share=share).batch(0, rows)
    assert (before.targets_BT == after.targets_BT).all()
    assert (before.segments_BT == after.segments_BT).all()
    changed = before.ids_BT != after.ids_BT
    fixed = np.isin(before.ids_BT, [cache.bos, *cache.tag_ids]) | (before.segments_BT == 0)
    assert fixed.any() and not changed[fixed].any()
    frequency = np.bincount(before.ids_BT[~fixed]) / (~fixed).sum()
    expected = share * (1 - (frequency**2).sum())  # a token may be replaced by itself
    assert abs(changed[~fixed].mean() / expected - 1) < 0.1


def test_replacements_follow_the_frequencies_of_the_training_text(cache):
    found = samples(cache, noise_share=1.0)
    rows = len(found.plan(0))
    fed, real = found.batch(0, rows), samples(cache).batch(0, rows)
    inner = (real.segments_BT > 0) & ~np.isin(real.ids_BT, [cache.bos, *cache.tag_ids])
    drawn, known = (np.bincount(b.ids_BT[inner], minlength=cache.vocab_size) for b in (fed, real))
    assert not drawn[[cache.bos, cache.eos, *cache.tag_ids]].any()
    assert drawn[known == 0].sum() < 0.01 * drawn.sum()
    assert np.corrcoef(drawn, known)[0, 1] > 0.98


def test_noise_belongs_to_seed_and_sample_and_is_new_in_every_epoch(cache):
    found, again = samples(cache, noise_share=0.3), samples(cache, noise_share=0.3)
    whole = found.batch(0, 12).ids_BT
    parts = [again.batch(first, 4).ids_BT for first in (8, 0, 4)]
    assert (np.concatenate([parts[i] for i in (1, 2, 0)]) == whole).all()
    clean = samples(cache)
    rows = len(clean.plan(0))
    changed = [found.batch(at, 8).ids_BT != clean.batch(at, 8).ids_BT for at in (0, rows)]
    assert (changed[0] != changed[1]).any()


def test_a_share_beyond_all_tokens_is_refused():
    with pytest.raises(ValueError, match=r"--token-noise 1.5: expected a number from 0 to 1"):
        TrainConfig(token_noise=1.5)
