"""What is drawn for each position of a row: which tokens are replaced, and which logits it computes."""

from __future__ import annotations

import numpy as np
import pytest

from yanmo.formats.packing_settings import Packing
from yanmo.train.data import Samples
from yanmo.train.row_draws import DRAWN, NEAR, WHOLE


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


def test_frequent_tokens_are_those_that_occur_most_often(cache):
    found = samples(cache, frequent=40).frequent
    counts = np.bincount(cache.tokens[0], minlength=cache.vocab_size)
    frequent, rare = found.order[:40], found.order[40:]
    assert sorted(found.order.tolist()) == list(range(cache.vocab_size))
    assert counts[frequent].min() >= counts[rare].max()
    assert found.covered == counts[frequent].sum() / counts.sum()


def test_rare_targets_compute_all_logits_and_a_share_of_the_others_does(cache):
    found = samples(cache, frequent=40)
    batch = found.batch(0, 400)
    is_frequent = np.isin(batch.targets_BT, found.frequent.order[:40])
    with_target = batch.targets_BT >= 0
    assert (batch.kinds_BT[with_target & ~is_frequent] == WHOLE).all()
    assert (batch.kinds_BT[~with_target] == NEAR).all()
    of_frequent = batch.kinds_BT[is_frequent]
    assert set(of_frequent.tolist()) == {NEAR, DRAWN}
    assert abs((of_frequent == DRAWN).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / len(of_frequent))


def test_the_draw_depends_on_seed_sample_and_position_alone(cache):
    whole, again = samples(cache, frequent=40).batch(0, 24), samples(cache, frequent=40)
    parts = [again.batch(first, 4) for first in (20, 0, 8, 4, 16, 12)]
    found = np.concatenate([parts[i].kinds_BT for i in (1, 3, 2, 5, 4, 0)])
    assert (found == whole.kinds_BT).all()
    assert (whole.rows(8, 12).kinds_BT == whole.kinds_BT[8:12]).all()
    later, other = samples(cache, frequent=40).batch(24, 24), samples(cache, seed=2, frequent=40).batch(0, 24)
    for different in (later, other):
        assert (different.kinds_BT == DRAWN).any() and (different.kinds_BT != whole.kinds_BT).any()


def test_a_vocabulary_that_is_no_larger_has_no_rare_tokens(cache):
    assert samples(cache, frequent=cache.vocab_size).batch(0, 4).kinds_BT is None
