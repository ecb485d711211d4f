"""On one machine nobody beyond it reaches a stage, and what reaches a training's ports runs nothing in it."""

from __future__ import annotations

import base64
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.start import STAGES
from processes import Listener, listeners, needs_proc, tree

from yanmo.common.errors import ExitCode
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

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


def run(
    asked: list[str],
    each: Callable[[set[Listener]], None] = lambda found: None,
    codes: tuple[int, ...] = (0,),
) -> tuple[set[Listener], int]:
    """Where a command and all below it listened while it ran, and its exit code.

    Args:
        each: called with what listens, a few times a second.
        codes: those it may end with.
    """
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
            found |= (now := listeners(tree(process.pid)))
            each(now)
            time.sleep(0.02)
    finally:
        process.kill()
        reading.join()
    assert process.returncode in codes, said
    return found, process.returncode


def open_to_others(found: set[Listener]) -> list[Listener]:
    return [one for one in found if not one.is_local]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, set[Listener]]]:
    """A store with a token cache, and where each data stage listened."""
    store = tmp_path_factory.mktemp("data")
    return store, {name: run(command(name, store))[0] for name in ("curate", "balance", "tokenize")}


def of_ranks(found: set[Listener]) -> list[Listener]:
    return [one for one in found if "yanmo.train.worker" in one.line]


def test_what_listens_is_seen_and_where():
    code = (
        "import socket, time\n"
        "kept = [socket.create_server((host, 0)) for host in ('127.0.0.1', '127.7.7.7', '0.0.0.0')]\n"
        "if socket.has_dualstack_ipv6():\n"
        "    kept.append(socket.create_server(('::', 0), family=socket.AF_INET6, dualstack_ipv6=True))\n"
        "kept.append(socket.socket(type=socket.SOCK_DGRAM)); kept[-1].bind(('0.0.0.0', 0))\n"
        "print(*(s.getsockname()[1] for s in kept), flush=True); time.sleep(60)\n"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    try:
        ports = [int(word) for word in process.stdout.readline().split()]
        found = listeners(tree(process.pid))
    finally:
        for pid in reversed(tree(process.pid)):
            os.kill(pid, 9)
        process.communicate()
    assert {one.port for one in found} == set(ports)
    assert {one.port for one in found if one.is_local} == set(ports[:2])


def test_no_data_stage_listens_beyond_this_machine(data):
    _, found = data
    for stage, seen in found.items():
        assert seen, f"{stage}: its /metrics was not seen"
        assert not open_to_others(seen), (stage, open_to_others(seen))


@pytest.mark.parametrize("ranks", RANKS)
def test_no_training_listens_beyond_this_machine_whatever_the_environment_says(data, tmp_path, ranks):
    store = shutil.copytree(data[0], tmp_path / "store")
    found, _ = run(command("train", store, *RANKS[ranks]))
    assert {one.line for one in of_ranks(found)}, "the ranks were not seen to connect"
    assert not open_to_others(found), open_to_others(found)


def test_neither_does_what_uses_the_model(data, tmp_path):
    store = shutil.copytree(data[0], tmp_path / "store")
    run(command("train", store))
    for stage in ("evaluate", "promote"):
        found, _ = run(command(stage, store))
        assert found and not open_to_others(found), (stage, open_to_others(found))


CLIENT = """
import datetime, sys
import torch.distributed as dist
host, port, *values = sys.argv[1:]
short = datetime.timedelta(seconds=2)
store = dist.TCPStore(host, int(port), None, False, timeout=short, wait_for_workers=False)
for key in [*store.list_keys(), "torch.rendezvous.none", "default_pg/0//cpu//0/0"]:
    for value in values:
        store.set(key, value)
print("set", store.list_keys())
"""
"""What a stranger does who finds a store of torch's: every key it holds becomes a pickle."""


class Attack:
    """Everything that a stranger can send to ports, each port once."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.ports, self.took = mark, set[int](), list[str]()
        self._clients: list[subprocess.Popen[str]] = []
        code = f"__import__('pathlib').Path({str(mark)!r}).touch()"

        class Runs:
            def __reduce__(self) -> tuple[object, ...]:
                return exec, (code,)

        self.payload = pickle.dumps(Runs())

    def look(self, found: set[Listener]) -> None:
        """Attack what listens for the first time."""
        for one in of_ranks(found):
            if one.port not in self.ports:
                self.ports.add(one.port)
                self._send(one)

    def _send(self, one: Listener) -> None:
        text = base64.b64encode(self.payload).decode()
        asked = [sys.executable, "-c", CLIENT, one.address, str(one.port), text]
        self._clients.append(subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        size = len(self.payload).to_bytes(8, "little")
        for data in (self.payload, size + self.payload, b"", bytes(8), b"\xff" * 4096):
            try:
                with socket.create_connection((one.address, one.port), 2) as wire:
                    wire.sendall(data)
            except OSError:  # it was closed in between
                pass

    def end(self) -> None:
        for client in self._clients:
            try:
                said, _ = client.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                client.kill()
                said, _ = client.communicate()
            self.took += [said.decode()] if said else []


def model_of(store: Path) -> Output:
    opened = open_store(str(store))
    return open_reference(opened, read_pointer(opened, "ports", "train"))


@pytest.mark.parametrize("ranks", ["two ranks, torch", "two ranks, deepspeed"])
def test_a_stranger_on_the_machine_runs_nothing_in_a_training_and_changes_none(data, tmp_path, ranks):
    """With torchrun's rendezvous, one key with a pickle ran code within 12 s.

    gloo takes whoever connects while it waits for a rank: a user of the same machine can end a training that
    begins, with 75, and no more.
    """
    more = (*RANKS[ranks], "--steps=500", "--warmup-steps=2", "--checkpoint-steps=200")
    quiet, attacked = (shutil.copytree(data[0], tmp_path / name) for name in ("quiet", "attacked"))
    run(command("train", quiet, *more))
    attack = Attack(tmp_path / "ran")
    try:
        _, code = run(command("train", attacked, *more), attack.look, (0, ExitCode.RETRY))
    finally:
        attack.end()
    assert len(attack.ports) >= (1 if code else 2), "the ranks listened, unless the first attack ended them"
    assert not attack.mark.exists(), "it ran what a stranger sent"
    assert not attack.took, "a store that anybody may write to"
    if code:
        run(command("train", attacked, *more))
    assert model_of(attacked).content_digest == model_of(quiet).content_digest
