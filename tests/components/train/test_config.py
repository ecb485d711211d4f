"""Contradictions are refused before anything is started, by name."""

import pytest

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--batch-rows=10", "--ranks=4"], "--ranks 4"),
        (["--batch-rows=12", "--ranks=2", "--micro-batch=4"], "--micro-batch 4"),
        (["--backend=torch", "--zero-stage=2"], "--zero-stage 2 needs --backend deepspeed"),
        (["--device=mps", "--backend=deepspeed"], "--device mps"),
        (["--device=cpu", "--offload=optimizer"], "--offload"),
        (["--device=cpu", "--attention=varlen"], "--attention varlen"),
        (["--attention=flash"], "--packing"),
        (["--early-stopping=3"], "--valid-every"),
        (["--schedule=plateau"], "--valid-every"),
        (["--micro-batch=some"], "micro-batch"),
        (["--preset=debgu"], "--preset debgu: expected a YAML file or one of .*; did you mean debug"),
        (["--heads=3", "--kv-heads=2"], "--kv-heads"),
        (["--head-width=33"], "--head-width"),
        (["--tied-head"], "--tied-head"),
        (["--steps=10", "--warmup-steps=10"], "--warmup-steps"),
        (["--muon-learning-rate=nan"], "--muon-learning-rate"),
        (["--precision=fp8"], "precision"),
        (["--learning-rate=1"], "unknown option --learning-rate; did you mean --.*--adam-learning-rate"),
        (["--night-power-watts=300"], "--night, which is not given"),
        (["--memory-share=1.5"], "--memory-share"),
        (["--ranks=0"], "--ranks 0: expected a whole number from 1 to 10000"),
        (["--clip=inf"], "--clip inf: expected a number from 0 to 1000000000"),
        (["--dropout=1"], "--dropout 1: expected a number from 0 to below 1"),
        (["--hang-seconds=1e-300"], "--hang-seconds 1e-300 .*: expected 0, or 10 or more"),
    ],
)
def test_a_contradiction_is_refused_by_name(flags, word):
    with pytest.raises(UsageError, match=word):
        load(TrainConfig, flags, "yanmo train")


def test_accumulation_follows_from_rows_ranks_and_micro_batch():
    config = TrainConfig(batch_rows=24, ranks=2, micro_batch=3)
    assert (config.rank_rows, config.micro_rows, config.accumulation) == (12, 3, 4)
    assert TrainConfig(batch_rows=24, ranks=2).accumulation == 1


def test_the_night_has_a_power_limit_of_its_own_where_one_is_given():
    both = TrainConfig(night="21:00-08:00", power_watts=300, night_power_watts=700)
    assert (both.watts(is_night=True), both.watts(is_night=False)) == (700, 300)
    day = TrainConfig(night="21:00-08:00", power_watts=300)
    assert day.watts(is_night=True) == day.watts(is_night=False) == 300
