"""Muon with AdamW under ZeRO equals the plain optimizers, with clipping on: the trap of DeepSpeed's Muon."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import SHAPE
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from yanmo.model.decoder import Decoder
from yanmo.train.backends.optimizer import MatrixAdamW, Piece, cut_places, orthogonalize, parameter_groups
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import MOST_TOGETHER


def options(**changes) -> TrainConfig:
    values = {"batch_rows": 4, "ranks": 1, "context": 16, "device": "cpu", "clip": 0.1}
    return TrainConfig(**{**values, **changes})


def random_decoder() -> Decoder:
    torch.manual_seed(0)
    decoder = Decoder(SHAPE)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return decoder


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (32, 32)])
def test_orthogonalized_matrices_have_singular_values_near_one(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalize(matrix, torch.float32))
    assert values.min() > 0.5 and values.max() < 1.3


@pytest.mark.parametrize("shape", [(30, 70), (70, 30), (40, 60), (1, 9)])
@pytest.mark.parametrize("kind", ["full", "one direction", "a wide spectrum", "zero"])
def test_the_factors_of_a_long_matrix_make_the_iterations_of_float64(shape, kind):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(shape, generator=generator)
    if kind == "one direction":
        matrix = matrix[:, :1] @ matrix[:1]
    if kind == "a wide spectrum":
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        matrix = left * torch.logspace(0, -6, len(values)) @ right
    if kind == "zero":
        matrix = torch.zeros(shape)
    expected = orthogonalize(matrix, torch.float64).double()  # in float64 the iterations are computed in full
    assert (orthogonalize(matrix, torch.float32) - expected).norm() <= 1e-3 * expected.norm()


@given(power=st.floats(-12, 4), rows=st.integers(2, 40), columns=st.integers(2, 40), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_in_fp16_an_update_of_any_size_is_that_of_fp32(power, rows, columns, seed):
    """Gradients are 1e-8 and less: in fp16 they would be 0 before they are divided by their norm."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn((2, rows, columns), generator=generator) * 10.0**power
    expected = orthogonalize(matrix, torch.float32)
    found = orthogonalize(matrix, torch.float16)
    assert found.dtype == torch.float32 and found.isfinite().all()
    assert (found - expected).norm() <= 0.02 * expected.norm()


def test_muon_takes_torchs_own_steps():
    # torch.optim.Muon orthogonalizes in bf16, ours in fp32 on a CPU: equal to bf16's 8 bits.
    matrices = [torch.randn(24, 40), torch.randn(40, 24)]
    ours, theirs = ([torch.nn.Parameter(m.clone()) for m in matrices] for _ in range(2))
    group = {"lr": 0.02, "weight_decay": 0.1, "rule": "muon", "momentum": 0.95, "peak_lr": 0.02}
    first = MatrixAdamW([{"params": ours, **group}], (0.9, 0.95))
    second = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=0.95)
    for step in range(4):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=torch.Generator().manual_seed(step))
            b.grad = a.grad.clone()
        first.step()
        second.step()
    for a, b, start in zip(ours, theirs, matrices, strict=True):
        assert (a - b).norm() < 0.02 * (b - start).norm()


def test_matrices_cut_between_ranks_are_found_once():
    size = torch.Size((4, 4))
    first = [Piece("a", size, 0, 16, 0), Piece("b", size, 0, 5, 16)]
    second = [Piece("b", size, 5, 11, 0), Piece("c", size, 0, 10, 11)]
    found = cut_places([first, second, [Piece("c", size, 10, 6, 0)]])
    assert (found.places, found.size) == ({"b": 0, "c": 16}, 32)
    assert cut_places([[Piece("a", size, 0, 16, 0)]]).places == {}


def test_matrices_of_the_layers_get_muon_and_nothing_else():
    groups = parameter_groups(random_decoder(), options(weight_decay=0.1))
    assert [(g["rule"], g["weight_decay"]) for g in groups] == [
        ("muon", 0.1),
        ("adamw", 0.0),
        ("adamw", 0.0),
        ("adamw", 0.0),
    ]
    assert [len(g["params"]) for g in groups] == [14, 1, 1, 9]
    assert not any(
        g["rule"] == "muon" for g in parameter_groups(random_decoder(), options(optimizer="adamw"))
    )


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (30, 32), (32, 32)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_matrices_taken_together_come_out_as_each_by_itself(shape, dtype, tolerance):
    several = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    several[1] *= 1e-3
    several[2] = 0
    alone = torch.stack([orthogonalize(matrix, dtype) for matrix in several])
    together = orthogonalize(several, dtype)
    assert together.dtype == torch.float32 and not together[2].any()
    assert (together - alone).norm() <= tolerance * alone.norm()


def located(layers: int, on: str | None, state: str = "cpu") -> MatrixAdamW:
    """Muon and AdamW over one flat tensor per group, with gradients, as an engine has it."""
    torch.manual_seed(0)
    with torch.device(state):
        decoder = Decoder(dataclasses.replace(SHAPE, num_hidden_layers=layers))
    names = {id(p): name for name, p in decoder.named_parameters()}
    groups = parameter_groups(decoder, options(weight_decay=0.1), "cuda")
    pieces: list[list[Piece]] = []
    for group in groups:
        found, at = [], 0
        for p in group["params"]:
            found.append(Piece(names[id(p)], p.shape, 0, p.numel(), at))
            at += p.numel()
        pieces.append(found)
        group["params"] = [torch.nn.Parameter(torch.cat([p.detach().flatten() for p in group["params"]]))]
    made = MatrixAdamW(groups, (0.9, 0.95))
    made.orthogonalizes_on = torch.device(on) if on else None
    for group, found in zip(groups, pieces, strict=True):
        (flat,) = group["params"]
        flat.grad = torch.randn_like(flat)
        made.locate(flat, found, cut_places([found]))
        made.make_states(flat, group["rule"])
    return made


@pytest.mark.parametrize("most", [1, 3 * 24 * 24, MOST_TOGETHER])
@pytest.mark.parametrize("refused", [None, 0.0, 1.0])
def test_a_step_that_takes_matrices_together_is_that_which_takes_each_by_itself(most, refused):
    weights = []
    for on in (None, "cpu"):
        made = located(3, on)
        made.together = most
        made.found_inf = None if refused is None else torch.tensor(refused)
        before = [group["params"][0].detach().clone() for group in made.param_groups]
        made.step()
        weights.append([group["params"][0].detach() for group in made.param_groups])
    for alone, together, start in zip(*weights, before, strict=True):
        moved = (alone - start).norm()
        assert (together - alone).norm() <= 1e-5 * moved, "also 0 where the step was refused"
        assert bool(moved) == (refused != 1.0)


class Launches(TorchDispatchMode):
    """Counts operations, and notes the devices of the matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.number, self.of_products = 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.number += func.namespace == "aten" and not func.is_view
        if func.overloadpacket.__name__ in ("mm", "bmm", "addmm", "baddbmm"):
            self.of_products.add(out.device.type)
        return out


@pytest.mark.parametrize("state", ["cuda", "cpu"], ids=["on the GPU", "offloaded"])
def test_a_gpu_orthogonalizes_with_few_launches_wherever_the_state_is(state):
    # Nothing is computed: torch follows shapes and devices, and no GPU is needed. What had to wait for one
    # would raise.
    numbers = []
    for layers in (2, 24):
        with FakeTensorMode():
            made = located(layers, "cuda", state)
            if state == "cuda":
                made.found_inf = torch.zeros((), device="cuda")
            with Launches() as launches:
                made.step()
            assert launches.of_products == {"cuda"}
            assert all(group["params"][0].device.type == state for group in made.param_groups)
        numbers.append(launches.number)
    assert numbers[0] == numbers[1] < 200, numbers
