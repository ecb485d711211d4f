"""The contestants of benchmarks/train.py: on a GPU a peer must not lose by what our side of it does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest
from torch.utils._python_dispatch import TorchDispatchMode

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ASKED = argparse.Namespace(
    **{"device": "cpu", "size": "tiny", "context": 16, "rows": 2, "vocabulary": 300, "precision": ""},
    **{"optimizer": "adamw", "compile": False},
)
SMALL = ["--layers=1", "--width=32", "--heads=2", "--kv-heads=1", "--head-width=16", "--feed-forward=48"]


@pytest.fixture
def bench(monkeypatch):
    # What the script sets for its whole process, so that it is taken back here.
    for name, value in {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "0")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setattr(sys, "path", [*sys.path, str(BENCHMARKS)])
    import train

    return train.Bench(ASKED, [*SMALL, "--attention=masked", "--frequent-tokens=0"])


class Sizes(TorchDispatchMode):
    """Counts operations whose result's size the host has to wait for."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += func.overloadpacket.__name__ in ("nonzero", "masked_select")
        return func(*args, **(kwargs or {}))


def test_the_bare_loop_waits_for_no_positions(bench):
    step = bench.bare()
    step(0)
    with Sizes() as sizes:
        step(1)
    assert sizes.number == 0


def test_a_row_alone_is_what_a_row_of_a_step_is(bench):
    one, many = bench.row(7), bench.ids(7)
    assert one.shape == many[0].shape == (17,) and one.dtype == many.dtype
    assert not np.array_equal(one, bench.row(8)) and max(one.max(), many.max()) < 300
