"""fp16: the loss scale comes down until nothing overflows, goes up again, and is part of the state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_model import SHAPE

from yanmo.common.errors import UsageError
from yanmo.model.decoder import Decoder
from yanmo.options.command_line import load
from yanmo.train.backends.engine import Engine
from yanmo.train.backends.loss_module import WINDOW
from yanmo.train.backends.plain import open_engine
from yanmo.train.checkpoints import checkpoint
from yanmo.train.checkpoints.checkpoint import Position
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch

pytestmark = pytest.mark.usefixtures("one_rank")
IDENTITY = {"test": "1"}


def engine_of(precision: str = "fp16") -> Engine:
    """A decoder whose first weights are the same in every precision."""
    values = {"batch_rows": 4, "ranks": 1, "context": 16, "device": "cpu", "micro_batch": 2, "clip": 0.1}
    torch.manual_seed(0)
    decoder = Decoder(SHAPE)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    decoder.to(torch.float16).float()
    return open_engine(decoder, TrainConfig(**values, backend="torch", precision=precision), "cpu")


def step(engine: Engine, number: int) -> tuple[float, bool]:
    """The loss of a step, and whether it moved the weights."""
    ids = np.random.default_rng(number).integers(0, 60, (4, 17))
    rows = Batch(ids[:, :-1], ids[:, 1:], np.ones((4, 16), np.int64))
    losses = [engine.accumulate(rows.rows(i, i + 2), rows.num_targets) for i in (0, 2)]
    moved = bool(engine.step())
    return float(sum(losses)) / rows.num_targets, moved


def settled(engine: Engine) -> int:
    """Train until a step moves the weights; how many steps came before it."""
    return next(number for number in range(60) if step(engine, number)[1])


def test_a_scale_that_is_too_high_is_halved_until_a_step_moves_the_weights():
    engine = engine_of()
    assert engine.loss_scale() == {"scale": 2.0**16, "good_steps": 0}
    engine.set_loss_scale({"scale": 2.0**36, "good_steps": 3})
    first = engine.full_weights()
    loss, moved = step(engine, 0)
    assert not moved and np.isfinite(loss) and engine.updates == 0
    assert all(torch.equal(value, first[name]) for name, value in engine.full_weights().items())
    assert engine.loss_scale() == {"scale": 2.0**35, "good_steps": 0}
    overflows = settled(engine)
    assert engine.loss_scale() == {"scale": 2.0 ** (35 - overflows), "good_steps": 1}
    assert engine.updates == 1


def test_after_enough_good_steps_the_scale_is_doubled():
    engine = engine_of()
    engine.set_loss_scale({"scale": 4.0, "good_steps": WINDOW - 1})
    assert step(engine, 0)[1] and engine.loss_scale() == {"scale": 8.0, "good_steps": 0}


def test_scaled_steps_are_those_of_fp32_but_for_rounding():
    """Losses, norms and weights; without a scale the smallest gradients of fp16 would be 0."""
    found, exact = engine_of(), engine_of("fp32")
    found.set_loss_scale({"scale": 2.0**8, "good_steps": 0})
    start = exact.full_weights()
    for number in range(6):
        (one, moved), (other, _) = step(found, number), step(exact, number)
        assert moved and abs(one - other) < 0.01
        assert found.gradient_norm() == pytest.approx(exact.gradient_norm(), rel=0.02)
    weights = found.full_weights()
    for name, value in exact.full_weights().items():
        assert (weights[name] - value).norm() < 0.1 * (value - start[name]).norm(), name


def test_a_checkpoint_holds_the_scale_and_the_training_goes_on_to_the_last_bit(tmp_path: Path):
    engine = engine_of()
    engine.set_loss_scale({"scale": 2.0**30, "good_steps": 0})
    for number in range(25):
        step(engine, number)
    scale = engine.loss_scale()
    assert 1 < scale["scale"] < 2.0**30 and scale["good_steps"] > 0
    temporary, final = tmp_path / ".tmp-step", tmp_path / checkpoint.name_of(25)
    checkpoint.write_rank(temporary, 0, checkpoint.snapshot(engine))
    checkpoint.commit(temporary, final, checkpoint.index_of(engine, Position(25, IDENTITY, {})))
    other = engine_of()
    checkpoint.load(other, final, IDENTITY)
    assert other.loss_scale() == scale
    assert [step(other, n) for n in range(25, 32)] == [step(engine, n) for n in range(25, 32)]
    there = other.full_weights()
    assert all(torch.equal(value, there[name]) for name, value in engine.full_weights().items())


def test_other_precisions_have_no_scale_and_write_none(tmp_path: Path):
    engine = engine_of("bf16")
    assert engine.loss_scale() == {}
    assert "loss_scale" not in checkpoint.index_of(engine, Position(0, IDENTITY, {}))
    engine.set_loss_scale({"scale": 2.0, "good_steps": 1})  # of a checkpoint from before another precision
    assert step(engine, 0)[1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--device=cpu", "--backend=deepspeed"], "needs --backend torch: DeepSpeed has it on GPUs only"),
        (["--device=mps", "--backend=torch", "--ranks=1"], "--precision fp16 needs CUDA"),
    ],
)
def test_where_fp16_cannot_run_it_is_refused_with_what_to_give_instead(flags: list[str], said: str):
    words = ["--store=x", "--token-cache=x", "--precision=fp16", *flags]
    with pytest.raises(UsageError, match=said):
        load(TrainConfig, words, "yanmo train")
