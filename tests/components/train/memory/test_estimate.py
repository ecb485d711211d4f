"""The memory estimate follows what it should, and refuses with what would fit."""

from __future__ import annotations

import dataclasses

import pytest

from yanmo.common.errors import EnvironmentFault
from yanmo.common.options import load
from yanmo.train.config import TrainConfig
from yanmo.train.memory import fitting
from yanmo.train.memory.estimate import check, estimate


def options(*flags: str) -> TrainConfig:
    return load(TrainConfig, list(flags), "yanmo train")


def test_sharing_out_and_computing_again_need_less():
    whole = estimate(options("--size=large", "--ranks=4"), 8192, "cpu")
    for change, what in (
        ({"zero_stage": 2}, "gradients"),
        ({"zero_stage": 3}, "weights"),
        ({"gradient_checkpointing": True}, "activations"),
        ({"micro_batch": 1}, "activations"),
        ({"precision": "bf16"}, "activations"),
    ):
        other = estimate(dataclasses.replace(options("--size=large", "--ranks=4"), **change), 8192, "cpu")
        assert getattr(other, what) < 0.8 * getattr(whole, what), change


def test_offload_moves_states_to_the_cpu():
    asked = options("--size=large", "--ranks=1", "--precision=bf16", "--device=cuda")
    moved = dataclasses.replace(asked, offload="optimizer")
    there, here = (estimate(o, 8192, "cuda") for o in (asked, moved))
    assert here.optimizer == 0 and here.host > there.optimizer > 0
    assert here.total < there.total


def test_what_cannot_fit_is_refused_with_what_would():
    asked = options("--size=medium", "--ranks=1", "--memory-gib=6", "--device=cpu")
    with pytest.raises(EnvironmentFault, match="--micro-batch 2 would fit"):
        check(asked, 8192, "cpu")
    check(dataclasses.replace(asked, micro_batch=2), 8192, "cpu")
    tight = dataclasses.replace(asked, memory_gib=3.6, micro_batch=0)
    with pytest.raises(EnvironmentFault, match="--gradient-checkpointing would fit"):
        check(tight, 8192, "cpu")
    with pytest.raises(EnvironmentFault, match="smaller --size"):
        check(dataclasses.replace(asked, memory_gib=1), 8192, "cpu")


def test_auto_takes_the_largest_micro_batch_that_fits():
    asked = options("--size=small", "--ranks=1", "--micro-batch=auto", "--memory-gib=4", "--device=cpu")
    rows = fitting.settle(asked, 8192, "cpu").micro_batch
    assert 64 % rows == 0 and 1 < rows < 64
    fits = dataclasses.replace(asked, micro_batch=rows)
    check(fits, 8192, "cpu")
    with pytest.raises(EnvironmentFault):
        check(dataclasses.replace(asked, micro_batch=2 * rows), 8192, "cpu")


def test_the_answer_of_a_gpu_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = options("--micro-batch=auto", "--ranks=1", "--device=cuda", "--memory-gib=8")
    tries = []
    monkeypatch.setattr(fitting, "_try", lambda *a: tries.append(a) or 8)  # there is no GPU to ask
    assert [fitting.settle(asked, 400, "cuda").micro_batch for _ in range(2)] == [8, 8]
    assert len(tries) == 1
    other = dataclasses.replace(asked, context=128)
    fitting.settle(other, 400, "cuda")
    assert len(tries) == 2
    (tmp_path / "yanmo" / "micro_batch.json").write_text("{", encoding="utf-8")
    assert fitting.settle(asked, 400, "cuda").micro_batch == 8
