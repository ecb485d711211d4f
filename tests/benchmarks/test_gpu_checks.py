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

import gpu_checks  # noqa: E402
import gpu_prepare  # noqa: E402
import gpu_report  # noqa: E402
from gpu_checks import PARTS, Planned, Setting, run  # noqa: E402

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

def raises(setting):
    import sys
    said = "Traceback (most recent call last):\n  File ...\n[rank0]: RuntimeError: what it was"
    print(said, "[rank0]:[W1127 ProcessGroupNCCL.cpp] Warning: not destroyed", sep="\n", file=sys.stderr)
    sys.exit(1)

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
        planned = [Planned(name, "fake_checks", each) for name in names]
        found, log = run(planned, "1", Setting("cpu", True, tmp_path), seconds)
        statuses = {name: [m.status for m in found if m.check == name] for name in names}
        return statuses, gpu_report.exit_code(found), found, log

    return started


def test_measures_are_read_and_a_skip_is_no_failure(checks):
    statuses, code, found, log = checks("good", "machineless")
    assert statuses == {"good": ["pass", "pass"], "machineless": ["skipped"]} and code == 0
    assert (found[0].difference, found[0].tolerance, found[0].reason) == (1e-3, 1e-2, "because")
    assert "some words" in log and "| good | a | pass | 0.001 | 0.01 | because |" in gpu_report.table(found)


def test_what_was_raised_is_said_and_not_what_a_library_says_after_it(checks):
    _, _, found, _ = checks("raises")
    assert found[-1].reason == "ended with 1: [rank0]: RuntimeError: what it was"


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


def test_results_are_written_below_out(checks, tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    _, _, found, log = checks("far", "machineless")
    gpu_checks.write("1", found, log)
    value = json.loads((tmp_path / "out" / "gpu-1.json").read_text(encoding="utf-8"))
    assert (
        value["counts"] == {"FAIL": 1, "skipped": 1} and value["measures"][1]["reason"] == "no such machine"
    )
    assert "== far" in (tmp_path / "out" / "gpu-1.log").read_text(encoding="utf-8")


def test_a_part_fits_its_nine_minutes_only_by_its_own_clock():
    assert gpu_checks.SECONDS <= 540
    for part in PARTS.values():
        assert all(20 <= planned.seconds <= 240 for planned in part)
        assert (BENCHMARKS / f"{part[0].module}.py").exists()


def test_the_script_says_how_it_is_used_and_ends_with_64():
    done = subprocess.run([str(BENCHMARKS / "gpu.sh")], capture_output=True, text=True)
    assert done.returncode == 64 and "benchmarks/gpu.sh prepare" in done.stderr


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """What `prepare` makes, without the wheels."""
    folder = tmp_path_factory.mktemp("gpu")
    gpu_prepare.stores(folder)
    return folder


def test_what_is_carried_is_small(prepared):
    assert sum(p.stat().st_size for p in prepared.rglob("*") if p.is_file()) < 8 << 20


@pytest.mark.process
@pytest.mark.parametrize(
    ("part", "only", "skips"),
    [
        (
            "1",
            ",".join(planned.name for planned in PARTS["1"]),
            {"varlen", "compiled layers", "steps without a wait"},
        ),
        ("2", ",".join(planned.name for planned in PARTS["2"]), set()),
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
