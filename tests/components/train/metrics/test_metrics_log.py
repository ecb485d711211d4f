"""The lines of metrics.jsonl of a real training."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chaos import null_gpu
from training_runs import command, lines_of, model_of

from yanmo.train.config import TrainConfig
from yanmo.train.schedule import Schedule


def test_the_figures_of_a_line_fit_together(trained_store: Path, tiny: dict[str, Any]):
    text = next(trained_store.rglob("metrics.jsonl")).read_text(encoding="utf-8")
    lines = [line for line in map(json.loads, text.splitlines()) if "phase_seconds" in line]
    config = TrainConfig(**tiny)
    schedule, peak = Schedule(config), config.muon_learning_rate
    assert len({line["learning_rate"] for line in lines}) > 2
    nothing = {"step": 0, "tokens": 0, "seconds": 0.0, "cpu_seconds": 0.0}
    for before, line in itertools.pairwise([nothing, *lines]):
        seconds = line["seconds"] - before["seconds"]
        assert line["tokens_per_second"] * seconds == pytest.approx(line["tokens"] - before["tokens"])
        assert line["cpu_seconds"] > before["cpu_seconds"]
        assert line["learning_rate"] == pytest.approx(peak * schedule.at(line["step"] - 1))
        rows = line["samples_per_second"] * seconds / (line["step"] - before["step"])
        assert rows == pytest.approx(round(rows)) and rows >= 1
        phases = [line["phase_seconds"][name] for name in ("data", "forward", "backward", "optimizer")]
        assert min(phases) >= 0 and sum(phases) == pytest.approx(seconds, abs=1e-5), "all that a step takes"
    assert lines[-1]["seconds_left"] == 0


@pytest.mark.process
@pytest.mark.skipif(bool(null_gpu.absent()), reason=null_gpu.absent() or "there is one")
@pytest.mark.skipif(not null_gpu.has_device_file(), reason="needs root and unshare")
def test_the_seconds_of_a_step_on_a_card_are_those_until_its_kernels_were_done(store: Path, tiny: Any):
    """Launching the kernels of a step takes 0.1 s here, and the card half a second or more."""
    card = [sys.executable, "-m", "chaos.null_gpu", "--arithmetic", "--microseconds=5000", "--"]
    options = {**tiny, "device": "cuda", "compile": "false", "backend": "torch", "steps": 3, "log_every": 1}
    tests = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    asked = [*card, *command(store, options)]
    done = subprocess.run(
        asked, capture_output=True, text=True, timeout=560, env={**os.environ, "PYTHONPATH": tests}
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in lines_of(model_of(store, "train")) if "loss" in line]
    assert len(lines) == 3
    for before, line in itertools.pairwise([{"seconds": 0.0, "tokens": 0}, *lines]):
        seconds = line["seconds"] - before["seconds"]
        assert line["tokens_per_second"] * seconds == pytest.approx(line["tokens"] - before["tokens"])
        assert seconds > 0.5, "a hundred kernels and more"
