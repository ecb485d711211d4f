"""The lines of metrics.jsonl of a real training."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

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
