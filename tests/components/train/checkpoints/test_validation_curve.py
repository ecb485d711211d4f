"""The validation curve: drawn by default, within its budget, and nothing of the training rests on it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from test_resume import lines

from yanmo.train import job, validate
from yanmo.train.config import TrainConfig
from yanmo.train.supervision.seed_twins import twin_of
from yanmo.train.validate import Curve

pytestmark = pytest.mark.usefixtures("one_rank")


@pytest.fixture
def any_budget(monkeypatch):
    """A training of a few steps has no budget for a curve."""
    monkeypatch.setattr(validate, "_SHARE", 100.0)


def curve_points(folder) -> list[dict]:
    text = (folder / job.METRICS).read_text(encoding="utf-8")
    return [found for found in map(json.loads, text.splitlines()) if "curve_bits_per_character" in found]


@given(points=st.integers(0, 50), steps=st.integers(1, 100_000), rows=st.integers(1, 64))
def test_a_curve_ends_with_the_training_and_keeps_to_its_share(cache, points, steps, rows):
    options = TrainConfig(
        valid_points=points, steps=steps, batch_rows=rows, ranks=1, context=64, warmup_steps=0
    )
    found = Curve.of(options, cache)
    assert len(found.steps) <= points and found.steps <= set(range(1, steps + 1))
    assert not found.steps or (len(found.steps) >= 2 and max(found.steps) == steps)
    forwards = 3 * steps * rows * 64
    assert len(found.steps) * found.validation.num_tokens <= validate._SHARE * forwards


def test_by_default_a_training_of_some_length_has_eight_points_and_decisions_have_none(cache):
    plain = TrainConfig(steps=100_000)
    assert len(Curve.of(plain, cache).steps) == 8
    for other in (
        {"valid_every": 10},
        {"valid_points": 0},
        {"valid_characters": 0},
        {"steps": 5, "warmup_steps": 0},
    ):
        assert not Curve.of(TrainConfig(**{"steps": 100_000, **other}), cache).steps
    assert not Curve.of(twin_of(plain, 0), cache).steps


@pytest.mark.parametrize(
    "options",
    [
        {"zero_stage": 1, "precision": "fp32"},
        {"zero_stage": 3, "precision": "bf16", "micro_batch": 4, "dropout": 0.1},
        {"backend": "torch", "precision": "fp32", "optimizer": "adamw", "token_noise": 0.3, "dropout": 0.1},
        {"zero_stage": 2, "precision": "bf16", "checkpoint_steps": 2, "log_every": 3},
    ],
    ids=lambda o: "-".join(map(str, o.values())),
)
@pytest.mark.usefixtures("any_budget")
def test_the_model_is_the_same_byte_for_byte_with_and_without_a_curve(options, train, tmp_path):
    assert train("none", valid_points=0, **options).state == "done"
    assert train("drawn", valid_points=5, **options).state == "done"
    drawn, none = curve_points(tmp_path / "drawn"), curve_points(tmp_path / "none")
    assert len(drawn) == 5 and not none
    assert all(point["curve_bits_per_character"]["mean"] > 0 for point in drawn)
    first, second = (tmp_path / f / job.EXPORT / "model.safetensors" for f in ("none", "drawn"))
    assert first.read_bytes() == second.read_bytes()
    without = [line for line in lines(tmp_path / "drawn") if "curve_bits_per_character" not in line]
    assert without == lines(tmp_path / "none")


def test_validations_that_decide_nothing_change_nothing_either(train, tmp_path):
    """ZeRO-3 makes a second decoder to score with, whose first weights are drawn at random as dropout is."""
    options = {"zero_stage": 3, "precision": "bf16", "dropout": 0.1, "checkpoint_seconds": 0}
    train("none", **options)
    train("every", valid_every=8, **options)
    train("often", valid_points=0, valid_every=3, **options)
    weights = [
        (tmp_path / f / job.EXPORT / "model.safetensors").read_bytes() for f in ("none", "every", "often")
    ]
    assert weights[0] == weights[1]
    best = [x for x in lines(tmp_path / "often") if "valid_bits_per_character" in x][-1]
    assert best["step"] == 8 and weights[2] == weights[0], "the last validation is the best one"


@pytest.mark.usefixtures("any_budget")
def test_a_training_that_was_stopped_draws_the_same_curve(train, tmp_path):
    train("whole", valid_points=5, steps=10)
    for stop_at in (4, 7):
        assert train("cut", stop_at=stop_at, valid_points=5, steps=10).state == "paused"
    train("cut", valid_points=5, steps=10)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert [point["step"] for point in curve_points(tmp_path / "whole")] == [2, 4, 6, 8, 10]
