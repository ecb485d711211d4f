"""Muon with AdamW under ZeRO equals the plain optimizers, with clipping on: the trap of DeepSpeed's Muon."""

from __future__ import annotations

import pytest
import torch
from tiny_model import SHAPE

from yanmo.model.decoder import Decoder
from yanmo.train.backends.optimizer import MatrixAdamW, Piece, cut_places, orthogonalize, parameter_groups
from yanmo.train.config import TrainConfig


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


def test_muon_takes_torchs_own_steps():
    # torch.optim.Muon orthogonalizes in bf16, ours in fp32 on a CPU: equal to bf16's 8 bits.
    matrices = [torch.randn(24, 40), torch.randn(40, 24)]
    ours, theirs = ([torch.nn.Parameter(m.clone()) for m in matrices] for _ in range(2))
    group = {"lr": 0.02, "weight_decay": 0.1, "muon": True, "momentum": 0.95, "peak_lr": 0.02}
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
    assert [(g["muon"], g["weight_decay"]) for g in groups] == [
        (True, 0.1),
        (False, 0.0),
        (False, 0.0),
        (False, 0.0),
    ]
    assert [len(g["params"]) for g in groups] == [14, 1, 1, 9]
    assert not any(g["muon"] for g in parameter_groups(random_decoder(), options(optimizer="adamw")))
