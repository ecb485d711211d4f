"""Ranks laid out on nodes in every way train one model: same samples, same decisions, same digits.

In each run a step is poisoned on the last rank alone, which all skip, and three in a row make all rewind.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from several_nodes import (
    OPTIONS,
    ROWS,
    SKIPPED,
    STEPS,
    TOLERANCE,
    Nodes,
    Trained,
    losses,
    model_of,
    samples_in,
    site_of,
    trained,
    wait_for_step,
)

pytestmark = pytest.mark.process
LAYOUTS = ((1, 2), (2, 1), (2, 2))
"""(nodes, ranks on each)."""


@pytest.fixture(scope="module")
def layouts(store_template, tiny, faults, tmp_path_factory) -> dict[tuple[int, int], Trained]:
    """(nodes, ranks on each) -> what they made."""
    found = {}
    for nnodes, ranks in LAYOUTS:
        folder = tmp_path_factory.mktemp(f"{nnodes}x{ranks}")
        where = Path(shutil.copytree(store_template, folder / "store"))
        site = site_of(faults, folder / "own", where, tiny)
        run = Nodes(where, {**tiny, **OPTIONS, "ranks": ranks}, nnodes, folder / "scratch", site)
        run.by_launcher = nnodes == ranks == 2
        try:
            run.start()
            ended = run.ends()
        finally:
            run.kill()
        assert {number: code for number, (code, _) in ended.items()} == dict.fromkeys(range(nnodes), 0), ended
        assert not list(where.glob("runs/train/*/nodes")), "working files of a node are left"
        found[nnodes, ranks] = trained(folder / "own", where, nnodes * ranks)
    return found


def test_one_node_with_two_ranks_and_two_with_one_do_not_differ_in_a_digit(layouts):
    alone, two = layouts[1, 2], layouts[2, 1]
    assert len(alone.losses) == STEPS and None not in alone.losses[SKIPPED:]
    assert two.losses == alone.losses
    assert two.samples == alone.samples
    assert two.model.content_digest == alone.model.content_digest
    assert two.model.manifest.key == alone.model.manifest.key


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_nodes_skip_and_rewind_together(layout, layouts):
    found = [(one["event"], one["step"]) for one in layouts[layout].events]
    assert ("skipped", SKIPPED) in found, "poisoned on the last rank alone"
    (rewind,) = [one for one in layouts[layout].events if one["event"] == "rewind"]
    assert (rewind["from_step"], rewind["step"]) == (8, 4)
    assert (rewind["first_sample"], rewind["samples"]) == (4 * ROWS, 4 * ROWS)


def test_two_ranks_and_four_see_the_same_samples_in_the_same_order(layouts):
    two, four = layouts[2, 1], layouts[2, 2]
    assert four.samples == two.samples
    assert len(two.samples) > STEPS, "the steps before the rewind too"
    finite = [step for step in range(STEPS) if two.losses[step] is not None]
    assert [step for step in range(STEPS) if four.losses[step] is not None] == finite
    assert np.allclose([four.losses[s] for s in finite], [two.losses[s] for s in finite], rtol=TOLERANCE)


def test_a_signal_to_one_node_pauses_all_and_another_number_of_nodes_goes_on(
    layouts, nodes, store, tiny, faults, tmp_path
):
    run = nodes(2, site=site_of(faults, tmp_path / "two", store, tiny), ranks=1, **OPTIONS)
    run.start(1)
    assert run.says(1, "node 1 of 2")
    run.start(0)
    wait_for_step(store, 10)
    run.running[1].send_signal(signal.SIGTERM)
    ended = run.ends()
    assert {number: code for number, (code, _) in ended.items()} == {0: 75, 1: 75}, ended
    assert "asked to stop by a signal to another node" in ended[0][1]
    assert "asked to stop by a signal" in ended[1][1], "by its own words, or by node 0's if those came first"
    saved = int(max(store.glob("runs/train/*/checkpoints/step-*")).name.removeprefix("step-"))
    assert 10 <= saved < STEPS
    alone = nodes(1, site=site_of(faults, tmp_path / "one", store, tiny), ranks=2, **OPTIONS)
    alone.start()
    code, said = alone.ends()[0]
    assert code == 0 and f"resuming at step {saved} of {STEPS}" in said, said
    undisturbed = layouts[2, 1]
    assert samples_in(tmp_path / "two/rows", 2) + samples_in(tmp_path / "one/rows", 2) == undisturbed.samples
    assert losses(model_of(store)) == undisturbed.losses
    assert model_of(store).content_digest == undisturbed.model.content_digest
