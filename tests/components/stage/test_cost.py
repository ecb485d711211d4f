"""What a stage's record of cost counts: from the start of its process, each second once."""

import os
import subprocess
import sys
import time
from pathlib import Path

from yanmo.stage.exporter import Telemetry
from yanmo.stage.run_telemetry import CostMeter, Counted, cpu_seconds

COMPONENTS = Path(__file__).parents[3] / "components"
TICK = 0.02
"""Seconds; the system notes a process's start in hundredths."""


def test_a_process_knows_when_it_was_started():
    script = "from yanmo.common.command_end import process_started; print(process_started())"
    environment = {**os.environ, "PYTHONPATH": str(COMPONENTS)}
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert before - TICK <= float(done.stdout) <= time.monotonic()


def shown(telemetry: Telemetry, name: str) -> float:
    found = telemetry.value(name)
    assert found is not None
    return found


def test_one_record_begins_where_the_one_before_ended():
    began = counted = Counted(time.monotonic(), cpu_seconds())
    sums = {"duration_seconds": 0.0, "cpu_seconds": 0.0}
    for name in ("evaluate", "baselines", "writing"):
        telemetry, meter = Telemetry(name), CostMeter(counted)
        sum(range(200_000))
        counted = meter.show(telemetry)
        for what in sums:
            sums[what] += shown(telemetry, what)
    assert abs(sums["duration_seconds"] - (counted.at - began.at)) < 1e-6
    assert abs(sums["cpu_seconds"] - (counted.cpu_seconds - began.cpu_seconds)) < 1e-6
    assert sums["cpu_seconds"] > 0
