"""Intervals over groups: documents of one author are not so many witnesses."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from paired import grouped_scores

from yanmo.common.bootstrap import interval
from yanmo.promote.gate.rules import judge
from yanmo.promote.gate.spread import GROUP, drawn_gains
from yanmo.promote.gate.verdict import Rules

TIMES = 250


def coverage(by_group, **more):
    """How often the 95 % interval holds the true gain, 0."""
    held = 0
    for seed in range(TIMES):
        values = grouped_scores(np.random.default_rng(seed), **more)
        drawn = drawn_gains({"诗": values if by_group else values[:, :GROUP]}, 400, seed)
        low, high = interval(drawn["诗"])
        held += low <= 0 <= high
    return held / TIMES


def test_an_interval_over_documents_is_too_narrow_where_they_hang_together():
    """And the one over groups holds its level."""
    assert coverage(by_group=False) < 0.85
    assert 0.90 <= coverage(by_group=True) <= 0.99


def test_groups_cost_nothing_where_documents_do_not_hang_together():
    assert 0.90 <= coverage(by_group=True, spread=0.0) <= 0.99
    assert 0.90 <= coverage(by_group=False, spread=0.0) <= 0.99


def test_luck_with_few_authors_is_promoted_far_more_often_without_groups():
    loose = Rules(min_gain=0.0, max_genre_loss=9.0, level=0.95, draws=400, seed=0)
    won = {False: 0, True: 0}
    for seed in range(200):
        values = grouped_scores(np.random.default_rng([seed, 7]))
        for by_group in won:
            won[by_group] += judge({"诗": values if by_group else values[:, :GROUP]}, loose).promote
    assert won[True] <= 12  # 2.5 % expected: 5; more than 12 has a chance of 0.2 %
    assert won[False] >= 2 * won[True] + 5


def test_a_genre_of_few_groups_is_marked_however_many_documents_it_has():
    values = grouped_scores(np.random.default_rng(2), groups=6, most=40)
    other = grouped_scores(np.random.default_rng(3), groups=40)
    rules = Rules(min_gain=0.003, max_genre_loss=0.05, level=0.95, draws=400, seed=0)
    verdict = judge({"诗": values, "词": other}, rules)
    few = verdict.genres["诗"]
    assert few["few_documents"] and few["groups"] == 6 and few["documents"] > 30
    assert not verdict.genres["词"]["few_documents"]
    assert verdict.gain["bits"] == pytest.approx(
        np.mean([verdict.genres[g]["gain"] for g in verdict.genres]), abs=1e-3
    )
