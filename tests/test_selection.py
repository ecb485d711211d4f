"""Which tests `make test` runs, what a draw adds to them, and what is said about it at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from selection import COSTLY, few

TESTS = """
import pytest

def test_quick(): ...

@pytest.mark.{kind}
def test_costly(): ...

@pytest.mark.fault(few=2)
@pytest.mark.parametrize("point", range(20))
def test_killed_at(point): print("point", point)
"""


def run(folder: Path, *flags: str, draw: str = "a1", workers: int = 2) -> str:
    """What pytest prints of a folder of three files, with this suite's conftest."""
    for place, kind in enumerate(("road", "process", "long")):
        (folder / f"test_{place}.py").write_text(TESTS.format(kind=kind), encoding="utf-8")
    names = {
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "YANMO_DRAW": draw,
    }
    command = [sys.executable, "-m", "pytest", "-rP", "--noconftest", "-p", "xdist", "-p", "conftest", *flags]
    done = subprocess.run(
        [*command, "-n", str(workers), "."],
        cwd=folder,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def points(printed: str) -> list[str]:
    return sorted(re.findall(r"^point (\d+)$", printed, flags=re.MULTILINE))


def test_the_quick_ones_run_with_a_few_drawn_cases_and_the_rest_is_named(tmp_path: Path) -> None:
    printed = run(tmp_path, "--quick", workers=2)
    assert "9 passed" in printed, "in each file one quick test and two points"
    assert "left to make test-all: 57 tests (54 fault, 1 road, 1 process, 1 long); draw a1" in printed
    assert points(printed) == points(run(tmp_path, "--quick", workers=0)), "the same draw, the same points"
    other = points(run(tmp_path, "--quick", draw="b1", workers=0))
    assert other != points(printed), "another draw, other points"


def test_a_draw_runs_what_the_quick_ones_leave_out_file_by_file(tmp_path: Path) -> None:
    in_turn = ("--dist", "loadfile", "--no-loadscope-reorder")
    printed = run(tmp_path, "--drawn", "5", *in_turn)
    assert "57 passed" in printed
    assert "draw a1: 57 of 57 costly tests, 3 of 3 files; again: make test DRAW=a1" in printed
    assert sorted(re.findall(r"^drawn: (\S+) \(19 of 19\)", printed, flags=re.MULTILINE)) == [
        "test_0.py",
        "test_1.py",
        "test_2.py",
    ]
    quick = points(run(tmp_path, "--quick"))
    assert sorted(points(printed) + quick) == sorted(3 * [str(n) for n in range(20)]), "nothing is lost"


def test_what_the_minutes_do_not_suffice_for_is_left_to_another_draw(tmp_path: Path) -> None:
    printed = run(tmp_path, "--drawn", "0")
    assert "draw a1: 0 of 57 costly tests, 0 of 3 files" in printed and "drawn: " not in printed


def test_each_marker_is_one_that_pytest_knows() -> None:
    done = subprocess.run([sys.executable, "-m", "pytest", "--markers"], capture_output=True, text=True)
    assert all(f"@pytest.mark.{name}: {text}" in done.stdout for name, text in COSTLY.items())


def test_a_few_points_are_all_of_them_where_all_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import selection

    monkeypatch.setitem(selection._options, "quick", False)
    assert few(range(9), "of a test") == list(range(9))
    monkeypatch.setitem(selection._options, "quick", True)
    kept = few(range(9), "of a test")
    assert len(kept) == 3 and kept == sorted(kept)
