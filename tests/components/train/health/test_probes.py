"""The figures of the collapse monitor on states whose answer is known, and on models that did collapse."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_model import SHAPE

from compiled import with_compiling
from yanmo.model.decoder import Decoder
from yanmo.train.health.probes import (
    active_units,
    attention_entropy,
    effective_rank,
    look_inside,
    output_entropy,
)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_units_that_never_fire_are_dormant(generator):
    activations = torch.randn(200, 40, generator=generator)
    activations[:, :10] = 0
    assert active_units(activations) == pytest.approx(0.75)


def test_the_effective_rank_is_the_number_of_directions(generator):
    basis = torch.linalg.qr(torch.randn(32, 32, generator=generator)).Q
    for rank in (1, 2, 8):
        weights = torch.linalg.qr(torch.randn(500, rank, generator=generator)).Q
        states = weights @ basis[:rank] + 7.0
        assert effective_rank(states) == pytest.approx(rank, rel=0.02)
    assert effective_rank(torch.full((10, 32), 0.3)) == 1.0


def test_uniform_attention_has_entropy_one_and_a_single_position_none():
    q = torch.zeros(1, 8, 2, 16)
    k = torch.randn(1, 8, 1, 16)
    segments = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0]])
    assert attention_entropy(q, k, segments) == pytest.approx(1.0, abs=1e-6)
    k = torch.nn.functional.one_hot(torch.arange(8), 16).float().view(1, 8, 1, 16) * 1000
    q = torch.nn.functional.one_hot(torch.arange(8), 16).float().view(1, 8, 1, 16).repeat(1, 1, 2, 1)
    assert attention_entropy(q, k, segments) == pytest.approx(0.0, abs=1e-6)


def test_the_output_entropy_is_a_share_of_a_uniform_guess():
    assert output_entropy(torch.zeros(5, 60)) == pytest.approx(1.0)
    certain = torch.zeros(5, 60)
    certain[:, 3] = 100.0
    assert output_entropy(certain) == pytest.approx(0.0, abs=1e-6)
    half = torch.full((5, 60), -100.0)
    half[:, :2] = 0.0
    assert output_entropy(half) == pytest.approx(math.log(2) / math.log(60), rel=1e-4)


def test_looking_inside_gives_every_layer_and_leaves_no_hook(generator):
    decoder = Decoder(SHAPE).eval()
    decoder.initialize(generator, 1.0)
    for layer in decoder.model.layers:
        torch.nn.init.normal_(layer.self_attn.o_proj.weight, std=0.1, generator=generator)
        torch.nn.init.normal_(layer.mlp.down_proj.weight, std=0.1, generator=generator)
    ids = torch.randint(0, 60, (4, 16), generator=generator)
    segments = torch.ones_like(ids)
    segments[:, 10:] = 0
    found = look_inside(decoder, ids, segments)
    assert all(len(found[name]) == 2 for name in ("active_units", "effective_rank", "attention_entropy"))
    assert min(found["active_units"]) > 0.9 and min(found["effective_rank"]) > 10
    assert min(found["attention_entropy"]) > 0.3 and 0.3 < found["output_entropy"] <= 1
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in decoder.modules())

    for layer in decoder.model.layers:
        layer.mlp.gate_proj.weight.data[:40] = 0  # silu(0) * up = 0: most units are dead
    decoder.model.embed_tokens.weight.data[:] = decoder.model.embed_tokens.weight.data[0]
    dead = look_inside(decoder, ids, segments)
    assert max(dead["active_units"]) < 0.2 and max(dead["effective_rank"]) < 3


@pytest.mark.process
def test_compiled_layers_that_ran_before_are_looked_into_too():
    with_compiling(__file__, "look_after_a_validation()")


def look_after_a_validation():
    generator = torch.Generator().manual_seed(0)
    # dynamo does not ask again whether a layer has hooks: a validation before would hide them.
    model = Decoder(SHAPE).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    ids, segments = torch.randint(0, 60, (2, 12), generator=generator), torch.ones(2, 12, dtype=torch.long)
    expected = look_inside(model, ids, segments)
    for layer in model.model.layers:
        layer.compile(backend="eager")
    with torch.no_grad():
        model.hidden(ids, segments)
    assert look_inside(model, ids, segments) == expected


def test_states_that_are_not_finite_end_no_training(generator):
    states = torch.randn(50, 20, generator=generator)
    states[3, 4] = math.inf
    assert math.isnan(effective_rank(states)) and math.isnan(active_units(states))
    torch.manual_seed(0)
    model = Decoder(SHAPE).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight[7] = math.nan
    ids = torch.full((1, 16), 7)
    found = look_inside(model, ids, torch.ones_like(ids))
    assert all(math.isnan(x) for x in (*found["effective_rank"], found["output_entropy"]))
