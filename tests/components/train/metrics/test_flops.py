"""FLOPs counted by module are those of the formula that the MFU rests on."""

from __future__ import annotations

import json
import logging

import pytest

from yanmo.model.decoder import DecoderConfig
from yanmo.train.job import FLOPS
from yanmo.train.metrics.flops import count_flops, write_flops

SHAPE = DecoderConfig(
    vocab_size=397,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=80,
    max_position_embeddings=64,
)


def test_the_count_is_the_formulas() -> None:
    found = count_flops(SHAPE, 64)
    assert found["flops_per_token"] == pytest.approx(found["by_formula"], rel=1e-12)
    assert sum(found["operations"].values()) == pytest.approx(found["flops_per_token"])


def test_modules_add_up_and_a_longer_context_costs_attention_alone() -> None:
    short, long = count_flops(SHAPE, 32), count_flops(SHAPE, 64)
    for found in (short, long):
        parts = [found["modules"][f"model.layers.{layer}"] for layer in range(3)]
        assert len(set(parts)) == 1 and sum(parts) + found["modules"]["lm_head"] == pytest.approx(
            found["flops_per_token"]
        )
    assert short["modules"]["model.layers.0.mlp"] == long["modules"]["model.layers.0.mlp"]
    assert short["modules"]["model.layers.0.self_attn"] < long["modules"]["model.layers.0.self_attn"]


def test_they_are_written_and_their_shares_logged(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    write_flops(tmp_path, SHAPE, 32)
    assert json.loads((tmp_path / FLOPS).read_text())["context"] == 32
    (line,) = caplog.messages
    assert "attention" in line and "feed-forward" in line and "head" in line
