"""Rows are a pure function of the sample number; every token is a target once per epoch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from yanmo.common.store.objects import open_store
from yanmo.common.store.output import open_reference
from yanmo.common.store.pointers import read_pointer
from yanmo.common.token_cache import TokenCache
from yanmo.train.data import NO_TARGET, Samples


@pytest.fixture(scope="module")
def cache(store_template) -> TokenCache:
    store = open_store(str(store_template))
    return TokenCache.open(open_reference(store, read_pointer(store, "dev", "tokenize")))


def samples(cache, **changes) -> Samples:
    return Samples(cache, **{"context": 32, "seed": 1, "tag_share": 0.5, "pad": 2, **changes})


def test_an_epoch_predicts_every_token_but_bos_once(cache):
    found = samples(cache)
    batch = found.batch(0, len(found.plan(0)))
    targets = Counter(batch.targets_BT[batch.targets_BT != NO_TARGET].tolist())
    expected = Counter(cache.tokens[0].tolist())
    del expected[cache.bos]
    assert targets == expected


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_every_target_follows_what_was_fed_and_tags_carry_no_loss(share, cache):
    found = samples(cache, tag_share=share)
    batch = found.batch(0, len(found.plan(0)))
    tags = np.isin(batch.ids_BT, cache.tag_ids)
    starts = batch.ids_BT == cache.bos
    assert abs(tags.sum() / starts.sum() - share) < 0.1
    assert not np.isin(batch.targets_BT, cache.tag_ids).any()
    assert (batch.targets_BT[:, :-1][tags[:, 1:]] == NO_TARGET).all()  # bos before a tag
    inside = (batch.segments_BT[:, 1:] == batch.segments_BT[:, :-1]) & (batch.segments_BT[:, 1:] > 0)
    inside &= ~tags[:, 1:]
    assert (batch.targets_BT[:, :-1][inside] == batch.ids_BT[:, 1:][inside]).all()
    padding = batch.segments_BT == 0
    assert (batch.targets_BT[padding] == NO_TARGET).all() and (batch.ids_BT[padding] == 2).all()


def test_samples_do_not_depend_on_how_they_are_cut_into_batches(cache):
    found, again = samples(cache), samples(cache)
    whole = found.batch(0, 24)
    parts = [again.batch(first, 4) for first in (20, 0, 8, 4, 16, 12)]
    order = [1, 3, 2, 5, 4, 0]
    for name in ("ids_BT", "targets_BT", "segments_BT"):
        assert (np.concatenate([getattr(parts[i], name) for i in order]) == getattr(whole, name)).all()


def test_the_last_batch_of_an_epoch_is_filled_from_the_next(cache):
    found = samples(cache)
    rows = len(found.plan(0))
    batch = found.batch(rows - 2, 5)
    assert found.locate(rows - 1) == (0, rows - 1) and found.locate(rows) == (1, 0)
    assert (batch.ids_BT[2:] == found.batch(rows, 3).ids_BT).all()
    ids = found.document_ids(0, rows + len(found.plan(1)))
    pieces = Counter(ids)
    assert set(pieces) == set(cache.split("train").ids.tolist())


def test_another_seed_gives_another_order(cache):
    assert samples(cache).plan(0).digest != samples(cache, seed=2).plan(0).digest
    assert samples(cache).plan(0).digest != samples(cache).plan(1).digest


def test_only_loss_spans_are_targets(cache):
    found = samples(cache, tag_share=0.0)
    length = found.index.length
    document = int(np.argmin(np.where(length > 20, length, 1000)))
    found.index.loss_spans[document] = [[3, 5], [9, 10]]
    try:
        targets = found._targets(document, 0, found._tokens(document, 0, 16)[1:])
        assert np.flatnonzero(targets != NO_TARGET).tolist() == [2, 3, 8]
    finally:
        found.index.loss_spans.clear()
