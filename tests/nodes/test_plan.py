"""The plan is a pure function of its seed, and meets every fault."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nodes.__main__ import note
from nodes.faults import Outcome
from nodes.plan import KINDS, cases
from nodes.table import table


def test_a_seed_gives_one_plan_and_each_fault_comes_before_any_comes_twice():
    assert cases(20, 20) == cases(20, 20) != cases(21, 20)
    assert {case.kind for case in cases(20, len(KINDS))} == set(KINDS)
    for case in cases(20, 200):
        nodes, ranks = case.layout
        assert 0 <= case.node < nodes and nodes * ranks in (2, 4)
        assert bool(case.offset) == (case.kind == "clock")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_table_has_a_row_for_each_case(language):
    case = {"number": 1, "kind": "clock", "layout": [2, 1], "node": 1, "step": 7, "offset": -600}
    outcome = {"case": case, "ends": [{"0": 75, "1": 75}, {"0": 0, "1": 0}], "lost": 3, "still": 4.4}
    outcome |= {"seconds": 41.6, "late": False, "findings": [], "writing": False}
    *_, row = table({"cases": [outcome]}, language).splitlines()
    assert "| 2 x 1 | 1 | 7 | 75 75; 0 0 | 3 | 4 | 42 |" in row and "-600 s" in row


def test_a_case_that_is_run_again_takes_the_place_of_its_first_run():
    found = {case.number: Outcome(case, still=float(case.number)) for case in cases(20, 3)}
    record = {"cases": []}
    for number in (1, 3, 2):
        note(record, found[number])
    note(record, replace(found[2], still=20.0))
    assert [one["still"] for one in record["cases"]] == [1.0, 20.0, 3.0]


def test_who_is_not_root_is_told_what_it_needs(tmp_path):
    code = "import os, sys; os.getuid = lambda: 1000; from nodes.__main__ import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 78 and "needs Linux and root" in done.stderr
