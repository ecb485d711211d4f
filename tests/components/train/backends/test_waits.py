"""A training step never reads a number back from the device, except where DeepSpeed itself does.

There is no device here that computes while the host goes on, so the test looks for operations that would wait
for one: `_local_scalar_dense` is what .item(), .tolist(), bool(), float() and int() of a tensor come down to;
`nonzero` and boolean indexing have a size that only the device knows.
"""

from __future__ import annotations

import importlib.util
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from yanmo.train.backends.plain import open_engine
from yanmo.train.data import Batch

_SPEC = importlib.util.spec_from_file_location("test_engine", Path(__file__).parent / "test_engine.py")
engines = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(engines)

pytestmark = pytest.mark.usefixtures("one_rank")
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero")
CPU_ONLY = "model/loss.py"
"""Asks whether a probability is too small, only where the tensor is on a CPU."""


class Waits(TorchDispatchMode):
    """Records from where an operation was called whose result the host has to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in WAITING:
            stack = [frame.filename for frame in traceback.extract_stack()]
            self.found.append(next(f for f in reversed(stack) if "/torch/" not in f and f != __file__))
        return func(*args, **(kwargs or {}))


def waits_of(engine, micro: int = 2) -> list[str]:
    engines.train(engine, range(1))
    rows = engines.batch(1)
    with Waits() as waits:
        for i in range(0, 4, micro):
            engine.accumulate(rows.rows(i, i + micro), rows.num_targets)
        engine.step()
    return [place for place in waits.found if not place.endswith(CPU_ONLY)]


def deferring(**changes):
    """The torch backend as it is on a GPU: the optimizer is told on the device whether to move."""
    asked = engines.options(backend="torch", **changes)
    engine = open_engine(engines.random_decoder(asked.precision), asked, "cpu")
    engine._defers = True
    return engine


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_step_of_the_torch_backend_waits_for_nothing(optimizer, precision):
    assert waits_of(deferring(optimizer=optimizer, precision=precision, micro_batch=2)) == []


def test_the_detector_sees_a_wait():
    engine = deferring()
    engine._defers = False
    assert [place.rpartition("/")[2] for place in waits_of(engine)] == ["plain.py"]


def test_what_is_copied_to_the_device_lies_in_one_piece():
    # Else torch makes another copy of it, which is not page-locked, and the host waits for that one's way.
    rows = engines.batch(0)
    segments = np.array([[1] * 5 + [0] * 11, [1] * 3 + [0] * 13] * 2)
    padded = Batch(rows.ids_BT, rows.targets_BT, segments, is_padded=True)
    found = []

    def note(*given) -> torch.Tensor:
        found.extend(x for x in given if isinstance(x, torch.Tensor))
        return torch.zeros(())

    trimmed = padded.rows(0, 2)
    assert trimmed.ids_BT.shape == (2, 8) and not trimmed.ids_BT.flags.c_contiguous
    for part in (trimmed, rows.rows(0, 2)):  # the second is cut from rows of one more position
        deferring()._loss(note, part, 1.0)
    assert len(found) == 8 and all(x.is_contiguous() for x in found)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_step_under_deepspeed_waits_only_in_deepspeed(stage):
    engine = open_engine(engines.random_decoder(), engines.options(zero_stage=stage, micro_batch=2), "cpu")
    waits = waits_of(engine)
    assert waits and all("/deepspeed/" in place for place in waits), waits


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_steps_decided_on_the_device_equal_those_decided_by_the_host(optimizer):
    device, host = (
        deferring(optimizer=optimizer, weight_decay=0.1),
        deferring(optimizer=optimizer, weight_decay=0.1),
    )
    host._defers = False
    assert engines.train(device, range(4)) == engines.train(host, range(4))
    one, two = engines.state_of(device), engines.state_of(host)
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert device.updates == host.updates == 4


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_moves_nothing_when_the_device_decides(optimizer, poison):
    engine = deferring(optimizer=optimizer, weight_decay=0.1)
    engines.train(engine, range(2))
    before = engines.state_of(engine)
    rows = engines.batch(5)
    engine.accumulate(rows, rows.num_targets)
    for flat in engine.flats:
        flat.grad[3] = poison
    assert not engine.step()
    after = engines.state_of(engine)
    assert all(torch.equal(before[key], after[key]) for key in before)
    steps = [float(state["step"]) for state in engine.optimizer.state.values() if "step" in state]
    assert engine.updates == 2 and set(steps) == {2.0}
    untouched = deferring(optimizer=optimizer, weight_decay=0.1)
    engines.train(untouched, range(2))
    assert engines.train(engine, range(2, 4)) == engines.train(untouched, range(2, 4)), (
        "as if it had not been"
    )
