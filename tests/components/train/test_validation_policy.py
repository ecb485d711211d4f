"""Early stopping and the plateau: when they act, and that a resumed run decides alike."""

from __future__ import annotations

import itertools
import json
import logging
import math

import pytest
from safetensors.numpy import load_file

from yanmo.train import job
from yanmo.train.config import TrainConfig
from yanmo.train.validate import Validation, ValidationPolicy, mean_of

VALIDATED = {"valid_every": 2, "valid_characters": 300}


def test_the_policy_ends_the_training_after_so_many_validations_without_a_gain():
    policy = ValidationPolicy.of(TrainConfig(early_stopping=2, early_min_delta=0.1, **VALIDATED))
    for figure in (5.0, 4.0, 3.95):
        assert not policy.update(figure) and not policy.is_over
    other = ValidationPolicy.of(TrainConfig(early_stopping=2, early_min_delta=0.1, **VALIDATED))
    other.restore(json.loads(json.dumps(policy.state())))
    for one in (policy, other):
        assert one.update(3.92) and one.is_over
    ended = ValidationPolicy.of(TrainConfig(early_stopping=2, early_min_delta=0.1, **VALIDATED))
    ended.restore(json.loads(json.dumps(other.state())))
    assert ended.is_over, "a run that was killed after its end does not train on"


def test_the_policy_lowers_the_rate_on_a_plateau_and_nothing_else():
    options = TrainConfig(schedule="plateau", plateau_validations=1, floor=0.1, **VALIDATED)
    policy = ValidationPolicy.of(options)
    assert [bool(policy.update(5.0)) for _ in range(2)] == [False, True]
    assert policy.multiplier == 0.5 and not policy.is_over
    other = ValidationPolicy.of(options)
    other.restore(json.loads(json.dumps(policy.state(), allow_nan=False)))
    assert other == policy
    assert ValidationPolicy.of(TrainConfig()).multiplier == 1.0


def test_limits_that_were_changed_count_for_a_training_that_goes_on():
    policy = ValidationPolicy.of(TrainConfig(early_stopping=2, **VALIDATED))
    assert not policy.update(5.0) and not policy.update(5.0)
    state = {"stopping": {"best": 5.0, "waited": 1}, "plateau": None, "is_over": False}  # of an older version
    for saved in (json.loads(json.dumps(policy.state(), allow_nan=False)), state):
        patient = ValidationPolicy.of(TrainConfig(early_stopping=4, early_min_delta=0.5, **VALIDATED))
        patient.restore(saved)
        assert [bool(patient.update(4.9)) for _ in range(3)] == [False, False, True] and patient.is_over
        without = ValidationPolicy.of(TrainConfig(**VALIDATED))
        without.restore(saved)
        assert without.stopping is None and not without.update(5.0)
    other = {"patience": {"best": 5.0, "waited": 0}, "multiplier": 0.5}
    lower = ValidationPolicy.of(
        TrainConfig(schedule="plateau", plateau_validations=1, floor=0.4, **VALIDATED)
    )
    lower.restore({"stopping": None, "plateau": other, "is_over": False})
    assert lower.update(5.0) == ["learning rate times 0.4"]


def test_a_validation_without_a_result_is_no_gain():
    assert mean_of({}) == mean_of({"mean": math.nan}) == math.inf


@pytest.mark.usefixtures("one_rank")
def test_the_best_model_is_handed_over(train, lines_in, tmp_path, monkeypatch, caplog):
    figures = itertools.chain([5.0, 4.0, 4.5, 4.6], itertools.repeat(1.0))
    monkeypatch.setattr(Validation, "bits_per_character", lambda *a: {"mean": next(figures)})
    constant = {"schedule": "constant", "steps": 20}
    caplog.set_level(logging.INFO, logger="yanmo")
    status = train("a", early_stopping=2, warmup_steps=0, **constant, **VALIDATED)
    lines = lines_in("a")
    said = "early stopping: the best was step 4, with 4.0000 bits per character; 12 of 20 steps saved"
    assert said in caplog.text
    assert (status.state, status.step) == ("done", 4)
    assert [x["step"] for x in lines if "valid_bits_per_character" in x] == [2, 4, 6, 8]
    assert [x["best_step"] for x in lines if x.get("event") == "best"] == [4]
    train("b", warmup_steps=0, **{**constant, "steps": 4})
    stopped, four_steps = (load_file(tmp_path / f / job.EXPORT / "model.safetensors") for f in "ab")
    assert all((stopped[name] == four_steps[name]).all() for name in stopped)
