"""Two ranks make one rank's steps, in every backend and ZeRO stage, and go on from each other's states."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).parent / "two_ranks.py"
_spec = importlib.util.spec_from_file_location("two_ranks", SCRIPT)
two_ranks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(two_ranks)
CASES, FP32, STEPS, HANDED_OVER = two_ranks.CASES, two_ranks.FP32, two_ranks.STEPS, two_ranks.HANDED_OVER

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("one_rank")]


@pytest.fixture(scope="module")
def alone(one_rank) -> dict:
    """One rank under plain torch, by precision: losses, the state handed over, and weights."""
    found = {}
    for case in ("torch", "torch-bf16"):
        engine = two_ranks.make(case, 1)
        losses = two_ranks.train(engine, range(HANDED_OVER))
        state = two_ranks.joined(two_ranks.parts(engine))
        losses += two_ranks.train(engine, range(HANDED_OVER, STEPS))
        found[case] = {
            "losses": losses,
            "state": state,
            "weights": engine.full_weights(),
            "norm": engine.gradient_norm(),
        }
    return found


@pytest.fixture(scope="module")
def found(alone, tmp_path_factory) -> list[dict]:
    """What each of two ranks found."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.save(alone["torch"]["state"], folder / "state.pt")
    ranks = two_ranks.start(folder)
    try:
        said = [process.communicate(timeout=500)[1].decode() for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(x[-3000:] for x in said)
    return [torch.load(folder / f"out.{n}", weights_only=True) for n in range(2)]


def peer(case: str) -> str:
    return "torch-bf16" if case.endswith("bf16") else "torch"


def tolerance(case: str) -> float:
    # fp32: sums in another order. bf16: ZeRO-2 and 3 reduce as torch does in fp32, activations are rounded.
    return 1e-2 if case.endswith("bf16") else 1e-5


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_make_the_steps_of_one(case, alone, found):
    one, two = alone[peer(case)], found[0][case]
    assert one["norm"] > 0.2, "the test is about clipped steps"
    assert np.allclose(two["losses"], one["losses"], rtol=tolerance(case))
    assert abs(two["norm"] - one["norm"]) < 10 * tolerance(case) * one["norm"]
    start = dict(two_ranks.decoder().named_parameters())
    for name, weight in one["weights"].items():
        moved = (weight - start[name].detach()).norm()
        assert (two["weights"][name] - weight).norm() < max(10 * tolerance(case), 1e-3) * moved, name


@pytest.mark.parametrize("case", CASES)
def test_both_ranks_have_the_same_weights(case, found):
    first, second = (rank[case] for rank in found)
    assert first["losses"] == second["losses"] and first["norm"] == second["norm"]
    assert all(torch.equal(first["weights"][name], second["weights"][name]) for name in first["weights"])


@pytest.mark.parametrize("case", CASES)
def test_the_parts_of_two_ranks_hold_every_state_whole(case, found):
    state = found[0][case]["state"]  # `joined` checked that there is no gap and no overlap
    for name, parameter in two_ranks.decoder().named_parameters():
        kinds = {kind for n, kind in state if n == name}
        muon = ".layers." in name and parameter.ndim == 2
        assert kinds == {"weight", *(["momentum_buffer"] if muon else ["exp_avg", "exp_avg_sq"])}, name
        assert all(len(state[name, kind]) == parameter.numel() for kind in kinds), name


@pytest.mark.parametrize("case", CASES)
def test_a_new_engine_goes_on_to_the_last_digit(case, found):
    assert found[0][case]["again"] == found[0][case]["losses"][HANDED_OVER:]


@pytest.mark.parametrize("case", FP32)
def test_states_go_from_one_rank_to_two_and_back(case, alone, found):
    expected = alone["torch"]["losses"][HANDED_OVER:]
    assert np.allclose(found[0][case]["from one rank"], expected, rtol=1e-5)
    back = two_ranks.go_on(case, 1, found[0][case]["state"])
    assert np.allclose(back, expected, rtol=1e-5)


@pytest.mark.parametrize("case", FP32)
def test_states_go_between_stages_and_backends(case, alone, found):
    expected = alone["torch"]["losses"][HANDED_OVER:]
    assert np.allclose(found[0][case]["from the case before"], expected, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_gradient_that_is_not_finite_on_one_rank_moves_none(case, found):
    assert [rank[case]["poisoned"] for rank in found] == [(False, True), (False, True)]
