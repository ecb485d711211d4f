"""On one machine nobody beyond it reaches a stage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from chaos.start import STAGES
from processes import Listener, listeners, needs_proc, tree

ROOT = Path(__file__).parents[2]
RANKS = {
    "one rank, torch": ("--ranks=1", "--backend=torch"),
    "one rank, deepspeed": ("--ranks=1", "--backend=deepspeed"),
    "two ranks, torch": ("--ranks=2", "--backend=torch"),
    "two ranks, deepspeed": ("--ranks=2", "--backend=deepspeed"),
}
pytestmark = [needs_proc, pytest.mark.process]


def command(stage: str, store: Path, *more: str) -> list[str]:
    """The small pipeline's stage, with /metrics, two workers where it takes some."""
    flags = list(STAGES[stage])
    if "--workers" in flags:
        flags[flags.index("--workers") + 1] = "2"
    return [sys.executable, "-m", f"yanmo.{stage}", *flags, "--channel=ports", f"--store={store}", *more]


def run(asked: list[str]) -> set[Listener]:
    """Where a command and all below it listened while it ran."""
    roots = os.pathsep.join(str(ROOT / name) for name in ("components", "pipelines"))
    around = {name: text for name, text in os.environ.items() if not name.startswith("YANMO_")}
    # Of a pod on two networks, or of a person who trains on several machines otherwise.
    around |= {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0", "PYTHONPATH": roots}
    process = subprocess.Popen(asked, stderr=subprocess.PIPE, text=True, env=around)
    said: list[str] = []
    reading = threading.Thread(target=lambda: said.append(process.stderr.read()))
    reading.start()
    found: set[Listener] = set()
    try:
        while process.poll() is None:
            found |= listeners(tree(process.pid))
            time.sleep(0.02)
    finally:
        process.kill()
        reading.join()
    assert process.returncode == 0, said
    return found


def open_to_others(found: set[Listener]) -> list[Listener]:
    return [one for one in found if not one.is_local]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, set[Listener]]]:
    """A store with a token cache, and where each data stage listened."""
    store = tmp_path_factory.mktemp("data")
    return store, {name: run(command(name, store)) for name in ("curate", "balance", "tokenize")}


def of_ranks(found: set[Listener]) -> list[Listener]:
    return [one for one in found if "yanmo.train.worker" in one.line]


def test_no_data_stage_listens_beyond_this_machine(data):
    _, found = data
    for stage, seen in found.items():
        assert seen, f"{stage}: its /metrics was not seen"
        assert not open_to_others(seen), (stage, open_to_others(seen))


@pytest.mark.parametrize("ranks", RANKS)
def test_no_training_listens_beyond_this_machine_whatever_the_environment_says(data, tmp_path, ranks):
    store = shutil.copytree(data[0], tmp_path / "store")
    found = run(command("train", store, *RANKS[ranks]))
    assert {one.line for one in of_ranks(found)}, "the ranks were not seen to connect"
    assert not open_to_others(found), open_to_others(found)
