"""The ranks that the supervisor starts: who they are, in which order they end, and what is left of them."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import is_alive, listeners, needs_proc

from yanmo.train.config import TrainConfig
from yanmo.train.job import MEETING, Place
from yanmo.train.supervision.ranks import Ranks, environments, start

WAITS = "import os, time; os.write(1, b'begun\\n'); time.sleep(600)"


def group(*programs: str, first_rank: int = 0) -> Ranks:
    """Ranks that run one program each."""
    code = "import os, sys; exec(sys.argv[1 + int(os.environ['NUMBER'])])"
    variables = [{**os.environ, "NUMBER": str(n)} for n in range(len(programs))]
    return Ranks([sys.executable, "-c", code, *programs], variables, first_rank)


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def begun(ranks: Ranks, count: int) -> None:
    assert [ranks.stdout.readline() for _ in range(count)] == [b"begun\n"] * count


def test_the_first_that_fails_is_known_and_the_others_are_asked_to_end():
    ranks = group(WAITS, WAITS, WAITS, first_rank=4)
    begun(ranks, 3)
    os.kill(ranks.pids[1], signal.SIGKILL)
    wait_for(lambda: ranks.have_ended)
    (first, code), *others = ranks.codes.items()
    assert (first, code) == (5, -signal.SIGKILL)
    assert sorted(others) == [(4, -signal.SIGTERM), (6, -signal.SIGTERM)]


def test_one_that_saves_when_it_is_asked_to_ends_in_its_own_time():
    ends = "import signal, sys; signal.signal(signal.{}, lambda *_: sys.exit({})); "
    ranks = group(ends.format("SIGTERM", 0) + WAITS, ends.format("SIGUSR1", 9) + WAITS)
    begun(ranks, 2)
    os.kill(ranks.pids[1], signal.SIGUSR1)
    wait_for(lambda: ranks.have_ended)
    assert ranks.codes == {1: 9}


def test_one_that_is_done_ends_no_other():
    ranks = group("", "import time; time.sleep(1); print('still there')")
    wait_for(lambda: ranks.have_ended)
    assert not ranks.codes and ranks.stdout.read() == b"still there\n"


@needs_proc
def test_all_are_ended_at_once_also_those_that_would_not_stop():
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"
    ranks = group(stubborn, stubborn)
    begun(ranks, 2)
    ranks.end()
    assert ranks.have_ended and not any(map(is_alive, ranks.pids))
    assert set(ranks.codes.values()) == {-signal.SIGKILL}


def test_a_rank_that_cannot_be_started_leaves_no_other_and_no_pipe(tmp_path):
    before = len(os.listdir("/proc/self/fd")) if Path("/proc").is_dir() else 0
    with pytest.raises(OSError):
        Ranks([str(tmp_path / "no such program")], [os.environ, os.environ])
    assert not before or len(os.listdir("/proc/self/fd")) == before


def variables_of(options: TrainConfig, folder: Path, place: Place | None = None) -> list[dict[str, str]]:
    ranks = start(options, folder / "none.json", place)
    try:
        found = []
        for pid in ranks.pids:
            wait_for(lambda path=Path(f"/proc/{pid}/environ"): bool(path.read_bytes()))
            text = Path(f"/proc/{pid}/environ").read_text()
            found.append(dict(line.partition("=")[::2] for line in text.split("\0")))
        return found
    finally:
        ranks.end()


@needs_proc
def test_ranks_of_one_machine_stay_on_its_loopback_whatever_the_environment_says(tmp_path, monkeypatch):
    said = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "ib0", "PET_NNODES": "2"}
    for name, value in {**said, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    found = variables_of(TrainConfig(ranks=2, batch_rows=2), tmp_path)
    assert [(one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"]) for one in found] == [
        ("0", "0", "2"),
        ("1", "1", "2"),
    ]
    for one in found:
        assert (one["GLOO_SOCKET_IFNAME"], one["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")
        assert one[MEETING].startswith("/proc/self/fd/"), "a file without a name"
        assert not [name for name in one if name.startswith(("PET_", "TORCHELASTIC"))]
    (alone,) = variables_of(TrainConfig(), tmp_path)
    assert MEETING not in alone and alone["NCCL_SOCKET_IFNAME"] == "=lo"
    assert os.listdir(tmp_path) == [], "nothing is left"


NCCL = """
import ctypes, sys, time
assert ctypes.CDLL(sys.argv[1]).ncclGetUniqueId(ctypes.create_string_buffer(128)) == 0
print("listens", flush=True)
time.sleep(600)
"""
"""What rank 0 does first where there is a GPU; it needs none."""


@needs_proc
def test_nccl_itself_listens_to_this_machine_alone(tmp_path, monkeypatch):
    found = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in found.submodule_search_locations or ()] if found else []
    libraries = [path for place in places for path in place.glob("nccl/lib/libnccl.so*")]
    if not libraries:
        pytest.skip("torch came without NCCL")
    said = {"NCCL_SOCKET_IFNAME": "^lo", "NCCL_COMM_ID": "0.0.0.0:29555"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    (variables,) = variables_of(TrainConfig(), tmp_path)
    command = [sys.executable, "-c", NCCL, str(libraries[0])]
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
    try:
        while "listens" not in (line := process.stdout.readline()):
            assert line
        seen = listeners([process.pid])
    finally:
        process.kill()
        process.communicate()
    assert seen and all(one.is_local for one in seen), seen


@needs_proc
def test_ranks_of_several_nodes_meet_at_node_0_over_the_interface_that_leads_there(tmp_path, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    place = Place(node=1, nnodes=2, ranks=2, address="node-0", port=29501, interface="eth0", meeting="a/1")
    found = variables_of(TrainConfig(ranks=2, nnodes=1, batch_rows=4), tmp_path, place)
    assert [one["RANK"] for one in found] == ["2", "3"] and found[0]["WORLD_SIZE"] == "4"
    assert found[0]["GLOO_SOCKET_IFNAME"] == "eth0" and MEETING not in found[0]
    assert [one["LOCAL_RANK"] for one in environments(3, None)] == ["0", "1", "2"]
