"""Rows are a pure function of the sample number; every token is a target once per epoch."""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np
import pytest

from yanmo.formats.packing_settings import MODES, Packing
from yanmo.formats.token_cache import DocumentIndex, TokenCache
from yanmo.train.data import NO_TARGET, Samples, cut_chats


def samples(cache, **changes) -> Samples:
    return Samples(
        cache, **{"packing": Packing(context=32), "seed": 1, "tag_share": 0.5, "pad": 2, **changes}
    )


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


@pytest.fixture
def with_spans(cache) -> TokenCache:
    """The cache, its third and fifth training document with loss on some tokens only, its seventh on none."""
    index = cache.split("train")
    index.loss_spans.update({2: [[3, 5], [9, 10]], 4: [[1, 4]], 6: []})
    changed = copy.copy(cache)
    changed.split = lambda name: index if name == "train" else cache.split(name)
    return changed


@pytest.mark.parametrize("mode", MODES)
def test_only_loss_spans_are_targets(with_spans, mode):
    found = samples(with_spans, packing=Packing(context=32, mode=mode), tag_share=1.0)
    batch, plan = found.batch(0, len(found.plan(0))), found.plan(0)
    tokens = with_spans.tokens[0]
    for document, spans in ((2, [3, 4, 9]), (4, [1, 2, 3]), (6, [])):
        begin = int(found.index.offset[document])
        got = []
        for piece in np.flatnonzero(plan.document == document):
            row = int(np.searchsorted(plan.row_offsets, piece, "right")) - 1
            number = piece - plan.row_offsets[row] + 1
            mine = batch.targets_BT[row][batch.segments_BT[row] == number]
            assert len(mine) == plan.length[piece], "documents with spans show no tag"
            got += [(int(plan.start[piece]) + 1 + i, int(t)) for i, t in enumerate(mine) if t != NO_TARGET]
        assert sorted(got) == [(place, int(tokens[begin + place])) for place in spans]
    others = np.delete(np.arange(len(found.index)), [2, 4, 6])
    assert batch.num_targets == int((found.index.length[others] - 1).sum()) + 6


def test_loss_in_bits_per_character_counts_only_tokens_with_loss(with_spans, cache):
    index = cache.split("train")
    silent = sum(int(index.length[i]) - 1 for i in (2, 4, 6)) - 6
    predicted = int(index.length.sum()) - len(index) - silent
    assert samples(with_spans).tokens_per_character == predicted / int(index.characters.sum())


def test_rows_of_one_document_are_as_wide_as_the_longest_of_them(cache):
    found = samples(cache, packing=Packing(context=512, mode="one"))
    batch = found.batch(0, 24)
    parts = [batch.rows(begin, begin + 4) for begin in range(0, 24, 4)]
    assert len({part.ids_BT.shape[1] for part in parts}) > 1
    assert sum(part.num_targets for part in parts) == batch.num_targets
    for part in parts:
        longest = int((part.segments_BT > 0).sum(1).max())
        assert longest <= part.ids_BT.shape[1] < longest + 8 and part.ids_BT.shape[1] % 8 == 0


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_rows_are_the_same_whether_a_thread_makes_them_ahead_or_not(cache, batches):
    plain, ahead = samples(cache), samples(cache, prefetch=batches)
    rows = len(plain.plan(0))
    for first in (
        0,
        5,
        10,
        15,
        rows - 2,
        rows + 3,
        5,
        10,
        rows + 8,
    ):  # in order, into the next epoch, and back
        expected, found = plain.batch(first, 5), ahead.batch(first, 5)
        for name in ("ids_BT", "targets_BT", "segments_BT"):
            assert (getattr(found, name) == getattr(expected, name)).all()


def test_rows_of_several_files_hold_the_tokens_of_the_right_one(cache):
    parted, index = copy.copy(cache), copy.copy(cache.split("train"))
    half = len(index) // 2
    cut = int(index.offset[half])
    parted.tokens = [cache.tokens[0][:cut], cache.tokens[0][cut:]]
    object.__setattr__(index, "shard", (np.arange(len(index)) >= half).astype(np.int32))
    object.__setattr__(index, "offset", index.offset - np.where(np.arange(len(index)) >= half, cut, 0))
    parted.split = lambda name: index
    assert (samples(parted).batch(0, 40).ids_BT == samples(cache).batch(0, 40).ids_BT).all()


def test_chats_that_do_not_fit_a_row_are_counted_and_the_longest_fits_what_is_named():
    lengths = np.array([10, 300, 258, 257, 900], np.int32)
    spans = {place: [[2, 4]] for place in (0, 2, 3, 4)}  # 1 is a text, which is cut like any
    index = DocumentIndex(*[lengths] * 6, spans)
    assert cut_chats(index, 256).startswith("2 of 4 chats are longer than --context 256")
    assert "--context 899 (train.context)" in cut_chats(index, 256)
    assert cut_chats(index, 899) == ""
    assert cut_chats(DocumentIndex(*[lengths] * 6, {}), 8) == ""
