import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.train import packing
from yanmo.train.packing import Plan, keyed_random, plan_epoch, tagged_documents


def poems(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(2, 40, count).astype(np.int64) + 3


def predicted(plan: Plan, num_documents: int) -> list[list[int]]:
    """Per document the positions of the tokens that are predicted, sorted."""
    seen: list[list[int]] = [[] for _ in range(num_documents)]
    for document, start, length in zip(plan.document, plan.start, plan.length, strict=True):
        seen[document].extend(range(start + 1, start + length + 1))
    return [sorted(positions) for positions in seen]


documents = st.lists(st.tuples(st.integers(2, 200), st.booleans()), max_size=60)


@settings(deadline=None, max_examples=200)
@given(documents, st.integers(2, 70), st.integers(0, 3), st.integers(0, 3))
def test_each_token_after_bos_is_predicted_exactly_once(documents, context, seed, epoch):
    lengths, tags = np.array([d[0] for d in documents], int), np.array([d[1] for d in documents], bool)
    plan = plan_epoch(lengths, tags, context, seed, epoch)
    assert predicted(plan, len(lengths)) == [list(range(1, n)) for n in lengths]
    assert sorted(plan.document[plan.tagged]) == np.flatnonzero(tags).tolist()
    assert not plan.start[plan.tagged].any()


@settings(deadline=None, max_examples=200)
@given(documents, st.integers(2, 70))
def test_no_row_is_empty_or_longer_than_the_context(documents, context):
    lengths, tags = np.array([d[0] for d in documents], int), np.array([d[1] for d in documents], bool)
    plan = plan_epoch(lengths, tags, context, 0, 0)
    sizes = plan.length.astype(int) + plan.tagged
    rows = [sizes[a:b].sum() for a, b in zip(plan.row_offsets[:-1], plan.row_offsets[1:], strict=True)]
    assert all(0 < size <= context for size in rows)
    assert plan.row_offsets[0] == 0 and plan.row_offsets[-1] == len(sizes)


def test_document_that_fits_is_never_cut():
    lengths = poems(5000)
    tags = lengths % 2 == 0
    plan = plan_epoch(lengths, tags, 128, 0, 0)
    pieces = np.bincount(plan.document, minlength=len(lengths))
    assert (pieces[lengths - 1 + tags <= 128] == 1).all()
    assert (pieces == -(-(lengths - 1 + tags) // 128)).all()


@pytest.mark.parametrize("context", [64, 128, 256, 512, 1024])
def test_less_than_three_in_a_thousand_positions_are_wasted_on_poems(context):
    plan = plan_epoch(poems(40_000), np.zeros(40_000, bool), context, 0, 0)
    assert plan.waste < 0.003
    assert plan.fill == pytest.approx(1 - plan.waste)


def test_each_epoch_and_seed_has_its_own_order():
    lengths, tags = poems(2000), np.zeros(2000, bool)
    digests = {plan_epoch(lengths, tags, 256, seed, epoch).digest for seed in range(3) for epoch in range(3)}
    assert len(digests) == 9


def test_lengths_do_not_drift_along_the_epoch():
    """Rows are shuffled: no stretch of the epoch is made of long documents only."""
    lengths = poems(40_000)
    plan = plan_epoch(lengths, np.zeros(40_000, bool), 256, 1, 0)
    parts = np.array_split(lengths[plan.document], 20)
    means = np.array([part.mean() for part in parts])
    assert means.std() < 0.05 * means.mean()


def test_plan_is_the_same_without_numba(monkeypatch):
    lengths = np.concatenate([poems(6000), np.arange(2, 3000, 7)])
    tags = np.arange(len(lengths)) % 2 == 0
    fast = plan_epoch(lengths, tags, 300, 3, 1)
    monkeypatch.setattr(packing, "_best_fit", packing._best_fit.python)
    assert plan_epoch(lengths, tags, 300, 3, 1).digest == fast.digest


def test_plan_of_today_is_the_plan_of_tomorrow():
    """A checkpoint holds this digest: a change of the algorithm breaks resuming and must be deliberate."""
    lengths = np.arange(2, 500)
    plan = plan_epoch(lengths, lengths % 3 == 0, 128, 7, 2)
    assert plan.digest == "4fe11e7c567ee0886b11188af5e3f976ea82d011fe19e03f6d5feffd7ec6a378"


def test_best_fit_takes_the_fullest_row_that_has_room():
    placed = np.empty(5, np.int64)
    rows = packing._best_fit(np.array([60, 50, 40, 38, 50]), 100, placed)
    assert rows == 3
    assert placed.tolist() == [0, 1, 0, 1, 2]


def test_empty_split_has_no_rows():
    plan = plan_epoch(np.array([], int), np.array([], bool), 64, 0, 0)
    assert len(plan) == 0 and plan.num_tokens == 0 and plan.waste == 0.0


@pytest.mark.parametrize(
    ("lengths", "tags", "context", "message"),
    [
        ([5], [False], 1, "context of 1"),
        ([5, 1], [False, False], 8, "document 1 has 1 tokens"),
        ([5], [False, True], 8, "one value each"),
    ],
)
def test_impossible_request_is_refused(lengths, tags, context, message):
    with pytest.raises(ValueError, match=message):
        plan_epoch(np.array(lengths), np.array(tags), context, 0, 0)


def test_half_of_the_documents_show_their_tag_another_half_each_epoch():
    ids = [f"{i:064x}" for i in keyed_random(20_000, 5, 5, 5).tolist()]
    ids = [i[48:] + i[:48] for i in ids]
    first, second = (tagged_documents(ids, 0, epoch, 0.5) for epoch in (0, 1))
    assert abs(first.mean() - 0.5) < 0.02
    assert abs((first == second).mean() - 0.5) < 0.02
    assert not tagged_documents(ids, 0, 0, 0.0).any()
    assert tagged_documents(ids, 0, 0, 1.0).all()


def test_tag_of_a_document_does_not_depend_on_the_others():
    ids = [f"{i:016x}{'0' * 48}" for i in keyed_random(100, 1, 1, 1).tolist()]
    assert tagged_documents(ids, 3, 2, 0.5)[40:].tolist() == tagged_documents(ids[40:], 3, 2, 0.5).tolist()
