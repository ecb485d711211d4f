from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from yanmo.common.errors import ExitCode, WorkerLost, exit_code
from yanmo.curate.pool import PRELOADED, ordered_map

COMPONENTS = Path(__file__).parents[3] / "components"


def test_results_come_in_the_order_of_tasks() -> None:
    lengths = [str(n) * (n % 7) for n in range(60)]
    assert list(ordered_map(len, lengths, workers=2)) == [len(x) for x in lengths]
    assert list(ordered_map(len, lengths, workers=1)) == [len(x) for x in lengths]
    assert list(ordered_map(len, lengths[:2], workers=2)) == [len(x) for x in lengths[:2]]


def test_only_a_few_tasks_are_drawn_ahead_of_the_results() -> None:
    drawn = []

    def tasks() -> Iterator[str]:
        for n in range(40):
            drawn.append(n)
            yield "x"

    results = ordered_map(len, tasks(), workers=2)
    next(results)
    assert len(drawn) <= 10
    results.close()  # type: ignore[attr-defined]


def test_an_error_in_a_worker_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        list(ordered_map(int, [*map(str, range(10)), "no number"], workers=2))


SCRIPT = """
import os, signal, sys, time
from yanmo.curate.pool import ordered_map
if __name__ == "__main__":
    for n, pid in enumerate(ordered_map(os.waitstatus_to_exitcode, [0] * 200_000_000, workers=2)):
        if n == 10:
            print("running", flush=True)
"""


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            child = int(stat.parent.name)
            found += [child, *_children(child)]
    return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _start(tmp_path: Path) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("[0] * 200_000_000", "iter(lambda: 0, 1)"))
    environment = {**os.environ, "PYTHONPATH": str(COMPONENTS)}
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    return process


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    process = _start(tmp_path)
    workers = _children(process.pid)
    assert len(workers) >= 3  # fork server and two workers
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while any(map(_is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in workers if _is_alive(pid)]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_killed_worker_is_reported_and_not_waited_for(tmp_path: Path) -> None:
    process = _start(tmp_path)
    os.kill(_children(process.pid)[-1], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"{WorkerLost.__name__}: a worker process was killed" in errors
    assert "--batch-bytes" in errors


def test_a_killed_worker_is_no_fault_of_the_machine_for_ever() -> None:
    assert exit_code(WorkerLost("killed")) == ExitCode.RETRY, "as for the workers of tokenize and train"


def test_what_the_fork_server_imports_is_there() -> None:
    """It passes over a name that is not, and then every worker imports by itself."""
    for name in PRELOADED:
        assert importlib.util.find_spec(name), name
