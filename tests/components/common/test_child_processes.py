"""A process ends with the one that started it, also where that was gone before it could ask."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import is_alive, needs_proc

COMPONENTS = Path(__file__).parents[3] / "components"
CHILD = """
import os, sys, time
from yanmo.common.child_processes import end_with_parent
time.sleep(float(sys.argv[1]))
end_with_parent()
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys
from yanmo.common.child_processes import PARENT
environment = {**os.environ, PARENT: str(os.getpid())}
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], env=environment)
print(child.pid, flush=True)
child.wait()
"""
pytestmark = needs_proc


@pytest.mark.parametrize(("late", "lines"), [("0", 2), ("1.5", 1)], ids=["asked", "gone before it asked"])
def test_it_ends_when_its_parent_is_killed(late: str, lines: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(COMPONENTS)}
    command = [sys.executable, "-c", PARENT, CHILD, late]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    child = [int(parent.stdout.readline()) for _ in range(lines)][-1]
    assert is_alive(child)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)
    assert parent.stdout.read() == "", "it did not get as far as its work"
