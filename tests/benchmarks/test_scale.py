"""What benchmarks/scale.py predicts: limits of its formulas."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from scale import (  # noqa: E402
    CONTEXT,
    H100,
    MEASURED,
    PUBLISHED,
    VOCABULARY,
    Gpu,
    check_rows,
    flops,
    options,
    plan,
    shape,
    share,
    step_seconds,
)

FREE = dataclasses.replace(H100, link=1e30, network=1e30, memory_bandwidth=1e30)


def seconds(ranks: int, gpu: Gpu, stage: int) -> float:
    return step_seconds(options(gpu, ranks, 512, zero_stage=stage, **shape(7e9)), gpu)[0]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_step_takes_at_least_its_flops_and_a_slower_machine_never_helps(stage: int) -> None:
    for ranks in (1, 8, 64, 512):
        o = options(FREE, ranks, 512, zero_stage=stage, **shape(7e9))
        least = 512 * CONTEXT * flops(o, VOCABULARY) / (FREE.peak * share(FREE, o.width) * ranks)
        assert seconds(ranks, FREE, stage) == pytest.approx(least, rel=0.02, abs=0.05)
        for name in ("network", "link", "memory_bandwidth", "peak"):
            slower = dataclasses.replace(H100, **{name: getattr(H100, name) / 3})
            assert seconds(ranks, slower, stage) >= seconds(ranks, H100, stage), name


def test_a_larger_model_takes_longer_and_what_does_not_fit_has_no_plan() -> None:
    plans = [plan(size, 1e11, 64, H100) for size in (1e9, 3e9, 1.3e10, 7e10)]
    found = [(p.seconds, p.gpu_hours(), p.node_gb) for p in plans if p]
    assert len(found) == 4 and found == sorted(found)
    assert plan(7e10, 0, 8, H100) is None, "no stage holds 70 billion on one node"
    assert plan(1e8, 0, 256, H100) is None, "128 rows for 256 GPUs"


@pytest.mark.parametrize("size", [1e8, 1e9, 7e9, 7e10])
def test_a_shape_has_about_as_many_parameters_as_were_asked_for(size: float) -> None:
    assert options(H100, 1, 1, **shape(size)).num_parameters(VOCABULARY) == pytest.approx(size, rel=0.06)


def test_what_was_not_fitted_is_predicted_within_two_fifths() -> None:
    found = [float(row.split("|")[-2]) for row in check_rows()]
    assert len(found) == len(PUBLISHED) and min(found) > 0.9 and max(found) < 1.4


@pytest.mark.process
def test_the_command_prints_both_tables_and_refuses_nothing_asked_for() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py")]
    asked = [*command, "--parameters", "1e8", "--gpus", "1,8", "--characters", "1e8"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1 + 2 + 1 + len(MEASURED)
    assert subprocess.run(command, capture_output=True).returncode == 2
