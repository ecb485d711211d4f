"""A worker of a stage that is killed: the stage ends with 75."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from processes import members, needs_proc, survivors

from yanmo.common.errors import ExitCode

ROOT = Path(__file__).parents[2]
pytestmark = needs_proc


def workers_of(stage: int) -> list[int]:
    """Its fork server's children."""
    parents = members(stage)
    return [pid for pid, parent in parents.items() if parent != stage and parents.get(parent) == stage]


def curate(store: Path) -> list[str]:
    source = ROOT / "tests" / "data" / "documents.jsonl"
    return ["curate", f"--sources={source}", "--batch-bytes=2000", "--workers=2", f"--store={store}"]


def test_a_killed_worker_ends_the_stage_with_75_and_the_same_command_goes_on(tmp_path: Path) -> None:
    stage, *flags = curate(tmp_path / "store")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    asked = [sys.executable, "-m", f"yanmo.{stage}", *flags, "--metrics-port=-1"]
    process = subprocess.Popen(
        asked, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while process.poll() is None:
        for worker in workers_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        time.sleep(0.01)
    _, stderr = process.communicate()
    assert process.returncode == ExitCode.RETRY, stderr
    assert "a worker process was killed (SIGKILL) in" in stderr and "fewer --workers" in stderr
    assert not survivors(process.pid)
    again = subprocess.run(asked, env=environment, capture_output=True, text=True)
    assert again.returncode == ExitCode.DONE, again.stderr
