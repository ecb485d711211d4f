"""Muon with AdamW under ZeRO equals the plain optimizers, with clipping on: the trap of DeepSpeed's Muon."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch
from yanmo.train.optimizer import MatrixAdamW, Piece, cut_places, orthogonalize, parameter_groups

SHAPE = DecoderConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=48,
    max_position_embeddings=16,
)


def options(**changes) -> TrainConfig:
    values = {"batch_rows": 4, "ranks": 1, "context": 16, "device": "cpu", "clip": 0.1}
    return TrainConfig(**{**values, **changes})


def random_decoder() -> Decoder:
    torch.manual_seed(0)
    decoder = Decoder(SHAPE)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return decoder


def batch(step: int) -> Batch:
    rng = np.random.default_rng(step)
    ids = rng.integers(0, 60, (4, 17))
    return Batch(ids[:, :-1], ids[:, 1:], np.ones((4, 16), np.int64))


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (32, 32)])
def test_orthogonalized_matrices_have_singular_values_near_one(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalize(matrix, torch.float32))
    assert values.min() > 0.5 and values.max() < 1.3


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


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 0.1)])
def test_clipped_steps_under_zero_equal_the_plain_optimizer(stage, precision, tolerance):
    # The measure is how far the weights went in six steps. bf16 rounds activations and weights that the
    # forward reads to 8 bits, so its gradients differ.
    from yanmo.train.engine import Engine

    chosen = options(zero_stage=stage, precision=precision)
    decoder = random_decoder()
    if precision == "bf16":
        decoder.to(torch.bfloat16).float()  # the engine rounds the first weights
    plain = copy.deepcopy(decoder)
    start = {n: p.detach().clone() for n, p in plain.named_parameters()}
    engine = Engine(decoder, chosen, "cpu")
    plain_optimizer = MatrixAdamW(parameter_groups(plain, chosen), (0.9, 0.95))
    for step in range(6):
        rows = batch(step)
        engine.accumulate(rows, rows.num_targets)
        logits = plain(torch.from_numpy(rows.ids_BT)).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, torch.from_numpy(rows.targets_BT).flatten()).backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), chosen.clip)
        assert norm > 2 * chosen.clip, "the test is about clipped steps"
        assert abs(engine.gradient_norm() - norm) < tolerance * norm
        plain_optimizer.step()
        plain_optimizer.zero_grad()
    found = engine.full_weights()
    for name, parameter in plain.named_parameters():
        moved = (parameter - start[name]).norm()
        assert (found[name] - parameter).norm() < max(tolerance, 1e-4) * moved, name


def test_matrices_cut_between_ranks_are_found_once():
    size = torch.Size((4, 4))
    first = [Piece("a", size, 0, 16, 0), Piece("b", size, 0, 5, 16)]
    second = [Piece("b", size, 5, 11, 0), Piece("c", size, 0, 10, 11)]
    assert cut_places([first, second, [Piece("c", size, 10, 6, 0)]]) == {"b": 0, "c": 16, "": 32}
    assert cut_places([[Piece("a", size, 0, 16, 0)]]) == {}


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
