"""benchmarks/gpu.sh on a CPU: the driver with checks that pass, fail, crash and hang, and the real checks.

What needs CUDA is skipped there and says so; the rest runs as it will on a GPU, in small.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import gpu_prepare  # noqa: E402
import gpu_report  # noqa: E402
from gpu_checks import PARTS, Setting, run  # noqa: E402

CHECKS = r"""
import os, time
from gpu_report import within, holds, skipped

def good(setting):
    print("some words")
    yield within("a", 1e-3, 1e-2, "because")
    yield holds("b", setting.device == "cpu", "the device is handed on")

def machineless(setting):
    yield skipped("c", "no such machine")

def far(setting):
    yield within("d", float("nan"), 1.0, "NaN is never within")

def crashes(setting):
    yield within("e", 0.0, 1.0, "before it")
    os.kill(os.getpid(), 11)

def says_nothing(setting):
    return iter(())

def hangs(setting):
    yield within("f", 0.0, 1.0, "before it")
    import subprocess, sys
    subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])
"""


@pytest.fixture
def checks(tmp_path, monkeypatch):
    """run(names) -> {check: statuses}, and the exit code; the checks above, each in its process."""
    (tmp_path / "fake_checks.py").write_text(CHECKS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT / "components")]))

    def started(*names, seconds=300.0, each=60.0):
        planned = dict.fromkeys(names, "fake_checks")
        found, log = run(planned, "1", Setting("cpu", True, tmp_path), seconds, each)
        statuses = {name: [m.status for m in found if m.check == name] for name in names}
        return statuses, gpu_report.exit_code(found), found, log

    return started


def test_measures_are_read_and_a_skip_is_no_failure(checks):
    statuses, code, found, log = checks("good", "machineless")
    assert statuses == {"good": ["pass", "pass"], "machineless": ["skipped"]} and code == 0
    assert (found[0].difference, found[0].tolerance, found[0].reason) == (1e-3, 1e-2, "because")
    assert "some words" in log and "| good | a | pass | 0.001 | 0.01 | because |" in gpu_report.table(found)


def test_a_crash_costs_its_own_check_alone(checks):
    statuses, code, found, _ = checks("crashes", "says_nothing", "far", "good")
    assert statuses["crashes"] == ["pass", "FAIL"] and statuses["says_nothing"] == ["FAIL"]
    assert statuses["far"] == ["FAIL"] and statuses["good"] == ["pass", "pass"] and code == 1
    assert "ended with -11" in next(m.reason for m in found if m.check == "crashes" and m.status == "FAIL")


def test_a_check_that_hangs_is_ended_and_what_has_no_time_is_named(checks):
    statuses, code, found, _ = checks("hangs", "good", seconds=60.0, each=15.0)
    assert statuses["hangs"] == ["pass", "no time"] and statuses["good"] == ["pass", "pass"]
    assert code == gpu_report.TRY_AGAIN
    statuses, code, found, _ = checks("good", "machineless", seconds=5.0)
    assert statuses == {"good": ["no time"], "machineless": ["no time"]}
    assert code == gpu_report.TRY_AGAIN and "s were left" in found[0].reason


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """What `prepare` makes, without the wheels."""
    folder = tmp_path_factory.mktemp("gpu")
    gpu_prepare.stores(folder)
    return folder


@pytest.mark.process
@pytest.mark.parametrize(
    ("part", "only", "skips"),
    [
        ("1", ",".join(PARTS["1"]), {"varlen", "compiled layers", "memory of CUDA"}),
        ("2", ",".join(PARTS["2"]), set()),
    ],
)
def test_the_checks_pass_on_a_cpu(part, only, skips, prepared, tmp_path):
    off = {"TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "DS_ACCELERATOR"}
    environment = {k: v for k, v in os.environ.items() if k not in off}
    environment |= {"OUT": str(tmp_path), "PYTHON": sys.executable}
    command = [
        str(BENCHMARKS / "gpu.sh"),
        part,
        "--device",
        "cpu",
        "--quick",
        "--seconds",
        "7200",
        "--only",
        only,
    ]
    done = subprocess.run(
        [*command, "--prepared", str(prepared)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    measures = json.loads((tmp_path / f"gpu-{part}.json").read_text(encoding="utf-8"))["measures"]
    assert {m["check"] for m in measures} == set(only.split(","))
    assert {m["name"] for m in measures if m["status"] == "skipped"} == skips
    assert all(m["reason"] for m in measures)
