import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.errors import UsageError
from yanmo.common.jit import compiled, has_numba
from yanmo.formats import packing
from yanmo.formats import packing_loops as rows
from yanmo.formats.packing import Packing, PackingPlan, id_numbers, keyed_random, plan_epoch, tagged_documents


def poems(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(2, 40, count).astype(np.int64) + 3


def predicted(plan: PackingPlan, num_documents: int) -> list[list[int]]:
    """Per document the positions of the tokens that are predicted, sorted."""
    seen: list[list[int]] = [[] for _ in range(num_documents)]
    for document, start, length in zip(plan.document, plan.start, plan.length, strict=True):
        seen[document].extend(range(start + 1, start + length + 1))
    return [sorted(positions) for positions in seen]


WAYS = ({}, {"mode": "concat"}, {"mode": "one"})
documents = st.lists(st.tuples(st.integers(2, 200), st.booleans()), max_size=60)


@settings(deadline=None, max_examples=100)
@given(documents, st.integers(2, 70), st.sampled_from(WAYS), st.integers(0, 3))
def test_each_token_after_bos_is_predicted_exactly_once(documents, context, way, epoch):
    lengths, tags = np.array([d[0] for d in documents], int), np.array([d[1] for d in documents], bool)
    plan = plan_epoch(lengths, tags, Packing(context=context, **way), 1, epoch)
    assert predicted(plan, len(lengths)) == [list(range(1, n)) for n in lengths]
    assert sorted(plan.document[plan.tagged]) == np.flatnonzero(tags).tolist()
    assert not plan.start[plan.tagged].any()


@settings(deadline=None, max_examples=100)
@given(documents, st.integers(20, 70), st.sampled_from(WAYS))
def test_no_row_is_empty_or_longer_than_the_context(documents, context, way):
    lengths, tags = np.array([d[0] for d in documents], int), np.array([d[1] for d in documents], bool)
    plan = plan_epoch(lengths, tags, Packing(context=context, **way), 0, 0)
    assert (plan.length > 0).all()
    sizes = plan.length.astype(int) + plan.tagged
    rows = [sizes[a:b].sum() for a, b in zip(plan.row_offsets[:-1], plan.row_offsets[1:], strict=True)]
    assert all(0 < size <= context for size in rows)
    assert plan.row_offsets[0] == 0 and plan.row_offsets[-1] == len(sizes)


def test_document_that_fits_is_never_cut():
    lengths = poems(5000)
    tags = lengths % 2 == 0
    plan = plan_epoch(lengths, tags, Packing(context=128), 0, 0)
    pieces = np.bincount(plan.document, minlength=len(lengths))
    assert (pieces[lengths - 1 + tags <= 128] == 1).all()
    assert (pieces == -(-(lengths - 1 + tags) // 128)).all()


def test_concat_wastes_less_than_one_row():
    plan = plan_epoch(poems(20_000), np.zeros(20_000, bool), Packing(context=256, mode="concat"), 0, 0)
    assert plan.waste * len(plan) < 1


def test_one_document_per_row_is_never_packed():
    plan = plan_epoch(poems(2000), np.zeros(2000, bool), Packing(context=64, mode="one"), 0, 0)
    assert (np.diff(plan.row_offsets) == 1).all()


@pytest.mark.parametrize("context", [64, 128, 256, 512, 1024, 2048])
def test_less_than_three_in_a_thousand_positions_are_wasted_on_poems(context):
    plan = plan_epoch(poems(40_000), np.zeros(40_000, bool), Packing(context=context), 0, 0)
    assert plan.waste < 0.003
    assert plan.fill == pytest.approx(1 - plan.waste)


def test_each_epoch_and_seed_has_its_own_order():
    lengths, tags = poems(2000), np.zeros(2000, bool)
    digests = {
        plan_epoch(lengths, tags, Packing(context=256), seed, epoch).digest
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(digests) == 9


def test_lengths_do_not_drift_along_the_epoch():
    """Rows are shuffled: no stretch of the epoch is made of long documents only."""
    lengths = poems(40_000)
    plan = plan_epoch(lengths, np.zeros(40_000, bool), Packing(context=256), 1, 0)
    parts = np.array_split(lengths[plan.document], 20)
    means = np.array([part.mean() for part in parts])
    assert means.std() < 0.05 * means.mean()


def test_plan_is_the_same_without_numba(monkeypatch):
    lengths = np.concatenate([poems(6000), np.arange(2, 3000, 7)])
    tags = np.arange(len(lengths)) % 2 == 0
    plain = {name: getattr(rows, name).python for name in ("best_fit", "pour", "_counting_sort")}
    digests = []
    for made in (compiled, lambda function: function):  # at once, not after the first pieces
        for name in ("best_fit", "pour"):
            monkeypatch.setattr(packing, name, made(plain[name]))
        monkeypatch.setattr(rows, "_counting_sort", made(plain["_counting_sort"]))
        digests.append(plan_epoch(lengths, tags, Packing(context=300), 3, 1).digest)
    assert digests[0] == digests[1]


def test_numba_is_imported_once_it_is_worth_it():
    """0.7 CPU-seconds in every rank; a small training needs it for nothing else."""
    code = "import sys, numpy as np; from yanmo.formats.packing_loops import longest_first\n"
    code += "sizes = np.arange(30_000) % 64 + 1; found = []\n"
    code += "for _ in range(3): found += [longest_first(sizes, 64).tolist()]; print('numba' in sys.modules)\n"
    code += "assert found[0] == found[1] == found[2] and found[0][0] == 63"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", str(has_numba()), str(has_numba())], done.stderr


def test_plan_of_today_is_the_plan_of_tomorrow():
    """A checkpoint holds this digest: a change of the algorithm breaks resuming and must be deliberate."""
    lengths = np.arange(2, 500)
    plan = plan_epoch(lengths, lengths % 3 == 0, Packing(context=128), 7, 2)
    assert plan.digest == "4fe11e7c567ee0886b11188af5e3f976ea82d011fe19e03f6d5feffd7ec6a378"
    lengths = np.arange(20_000) * 7919 % 400 + 2  # in several blocks
    plan = plan_epoch(lengths, lengths % 3 == 0, Packing(context=128), 7, 2)
    assert plan.digest == "c59adb59327df63bd83bd430f6bbbb7952da5fc449f84d099efdae117c20b738"


def test_best_fit_takes_the_fullest_row_that_has_room():
    placed = np.empty(5, np.int64)
    free = np.empty(5, np.int64)
    assert rows.best_fit(np.array([60, 50, 40, 38, 50]), 100, placed, free) == 3
    assert free[:3].tolist() == [0, 12, 50]
    assert placed.tolist() == [0, 1, 0, 1, 2]


def test_empty_split_has_no_rows():
    plan = plan_epoch(np.array([], int), np.array([], bool), Packing(context=64), 0, 0)
    assert len(plan) == 0 and plan.num_tokens == 0 and plan.waste == 0.0


@pytest.mark.parametrize(
    ("lengths", "tags", "context", "message"),
    [
        ([5], [False], 1, "--context 1"),
        ([5, 1], [False, False], 8, "document 1 has 1 tokens"),
        ([5], [False, True], 8, "one value each"),
    ],
)
def test_impossible_request_is_refused(lengths, tags, context, message):
    with pytest.raises(UsageError, match="expected best-fit, concat, one"):
        Packing(context=64, mode="padded")
    with pytest.raises(ValueError, match=message):
        plan_epoch(np.array(lengths), np.array(tags), Packing(context=context), 0, 0)


def test_half_of_the_documents_show_their_tag_another_half_each_epoch():
    ids = [f"{i:064x}" for i in keyed_random(20_000, 5, 5, 5).tolist()]
    ids = [i[48:] + i[:48] for i in ids]
    numbers = id_numbers(np.array(ids, object))
    first, second = (tagged_documents(numbers, 0, epoch, 0.5) for epoch in (0, 1))
    assert abs(first.mean() - 0.5) < 0.02
    assert abs((first == second).mean() - 0.5) < 0.02
    assert not tagged_documents(numbers, 0, 0, 0.0).any()
    assert tagged_documents(numbers, 0, 0, 1.0).all()


def test_tag_of_a_document_does_not_depend_on_the_others():
    ids = [f"{i:016x}{'0' * 48}" for i in keyed_random(100, 1, 1, 1).tolist()]
    whole, part = (id_numbers(np.array(some, object)) for some in (ids, ids[40:]))
    assert tagged_documents(whole, 3, 2, 0.5)[40:].tolist() == tagged_documents(part, 3, 2, 0.5).tolist()


def test_number_of_an_id_is_its_first_sixteen_digits():
    ids = ["00000000000000ff" + "a" * 48, "fedcba9876543210" + "0" * 48]
    assert id_numbers(np.array(ids, object)).tolist() == [0xFF, 0xFEDCBA9876543210]
    assert not len(id_numbers(np.array([], object)))
