"""What several nodes do when one is killed, stands still, or is not one of them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from processes import needs_proc
from several_nodes import a_port, losses, model_of, wait_for_step, workers_of

from yanmo.stage.failing import rerun_command
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.health.watchdog import JOINING

pytestmark = pytest.mark.process


@needs_proc
def test_a_node_that_is_killed_ends_all_and_the_same_command_goes_on(nodes, store):
    run = nodes(2, ranks=1, steps=80, checkpoint_steps=2)
    run.start()
    wait_for_step(store, 5)
    killed = time.monotonic()
    run.running[1].kill()
    ended = run.ends()
    assert time.monotonic() - killed < 120
    assert ended[0][0] == 75 and "lost its connection to another rank" in ended[0][1], ended
    assert not workers_of(store)
    run.start()
    wait_for_step(store, 20)
    os.kill(run.running[0].pid, signal.SIGKILL)
    code, said = run.ends()[1]
    assert code == 75 and "the logs of the other nodes say more" in said, said
    assert not workers_of(store)
    run.start()
    ended = run.ends()
    assert {number: code for number, (code, _) in ended.items()} == {0: 0, 1: 0}, ended
    assert "resuming at step" in ended[0][1]
    assert len(losses(model_of(store))) == 80


def _serves_its_own_ranks(port: int, node: int) -> None:
    """The figures that a pod serves: those of its ranks, which come within a second."""
    end, wanted = time.monotonic() + 30, {"ranks": 1}
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = {n: float(line.split()[-1]) for n in wanted for line in lines if _is(line, n)}
        ranks = {line for line in lines if line.startswith("yanmo_train_step_seconds_total{")}
        if ranks or time.monotonic() > end:
            break
        time.sleep(0.2)
    assert found == wanted, lines
    assert len(ranks) == 1 and f'rank="{node}"' in ranks.pop(), "one rank on each of two nodes"


def _is(line: str, name: str) -> bool:
    return line.partition(" ")[0].partition("{")[0] == f"yanmo_train_{name}"


def test_a_node_whose_node_0_died_after_the_commit_ends_well(nodes, store, trained_store):
    run = nodes(4, ranks=1)  # two of them never come, so that the ranks wait
    run.start(0, 1)
    assert _waits_for_others(store, 1)
    shutil.copytree(trained_store / "cas/train", store / "cas/train", dirs_exist_ok=True)
    os.kill(run.running[0].pid, signal.SIGKILL)
    code, said = run.ends()[1]
    assert code == 0 and "the model is committed" in said, said


def test_a_node_that_never_reached_node_0_sees_that_it_is_gone_and_the_model_there(
    nodes, store, trained_store
):
    """Killed before the rank here had reached its port, where nobody then answers for ten minutes."""
    run = nodes(4, ranks=1, rendezvous_seconds=300)
    run.start(0)
    assert _waits_for_others(store, 0)
    run.port = a_port()  # the rank of node 1 asks where nobody is
    run.start(1)
    assert _waits_for_others(store, 1)
    shutil.copytree(trained_store / "cas/train", store / "cas/train", dirs_exist_ok=True)
    os.kill(run.running[0].pid, signal.SIGKILL)
    began = time.monotonic()
    code, said = run.ends()[1]
    assert code == 0 and "the model is committed" in said and time.monotonic() - began < 120, said


def _waits_for_others(store: Path, node: int, seconds: float = 120) -> bool:
    """Whether a rank of the node comes to wait for those of other nodes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        own = f"nodes/{node}/" if node else ""
        for path in store.glob(f"runs/train/*/{own}heartbeats/doing-*"):
            if path.read_text(encoding="utf-8").strip() == JOINING:
                return True
        time.sleep(0.05)
    return False


def test_a_node_whose_node_0_is_started_again_alone_joins_the_new_one(nodes, store):
    """As pods of an Indexed Job come back one by one: ranks of two starts never meet."""
    run = nodes(4, ranks=1, steps=20)
    run.start(0, 1)
    assert _waits_for_others(store, 1)
    os.kill(run.running[0].pid, signal.SIGKILL)
    run.running[0].wait()
    run.start(0)
    run.start(2, 3)
    ended = run.ends()
    assert {number: code for number, (code, _) in ended.items()} == dict.fromkeys(range(4), 0), ended


@needs_proc
def test_a_rank_that_stands_still_ends_all_within_the_time_that_was_given(nodes, store):
    run = nodes(2, ranks=1, steps=100_000, collective_seconds=40)
    ports = {number: a_port() for number in range(2)}
    for number, port in ports.items():
        run.start(number, metrics_port=port)
    wait_for_step(store, 3)
    for number, port in ports.items():
        _serves_its_own_ranks(port, number)
    (path,) = store.glob("runs/train/*/nodes/1/heartbeats/rank-*")
    os.kill(int(path.read_text(encoding="utf-8")), signal.SIGSTOP)
    frozen = time.monotonic()
    ended = run.ends()
    assert {number: code for number, (code, _) in ended.items()} == {0: 75, 1: 75}, ended
    assert "rank 1 stands still and does not answer" in ended[1][1], ended[1][1]
    assert "lost its connection" in ended[0][1] or "no progress" in ended[0][1], ended[0][1]
    assert 24 < time.monotonic() - frozen < 180
    assert not workers_of(store)


@pytest.fixture
def bucket(s3_server, s3_place, store, tmp_path, monkeypatch) -> str:
    """The store with a token cache, on a real S3 server."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "own"))
    uri = f"s3://{s3_place}/{tmp_path.name}"
    target = open_store(uri)
    for path in sorted(store.rglob("*")):
        if path.is_file():
            target.create(str(path.relative_to(store)), path.read_bytes())
    return uri


def cache_of(store: str) -> Output:
    opened = open_store(store)
    return open_reference(opened, read_pointer(opened, "dev", "tokenize"))


def test_on_s3_nodes_share_no_disk_and_a_run_elsewhere_goes_on_to_the_same_digits(
    bucket, nodes, store, tmp_path
):
    options = {"ranks": 1, "steps": 24, "checkpoint_steps": 2}
    run = nodes(2, bucket, **options)
    run.start()
    wait_for_step(run.scratch / "0", 5)
    run.running[0].send_signal(signal.SIGTERM)
    ended = run.ends()
    assert {number: code for number, (code, _) in ended.items()} == {0: 75, 1: 75}, ended
    assert not list(run.scratch.glob("1/**/checkpoints/step-*")), "only node 0 keeps checkpoints"
    shards = {one.sha256 for one in cache_of(bucket).manifest.files if one.path.startswith("tokens-")}
    for number in range(2):
        cached = {path.name for path in run.scratch.glob(f"{number}/objects/*/*")}  # named by their content
        assert len(shards) == 2 and shards <= cached, "on a disk of its own"
    (key,) = {one.name.split("/")[2] for one in open_store(bucket).list("runs/train") if "/step-" in one.name}
    open_store(bucket).create(f"runs/train/{key}/parts/killed/step-00000001/rank-00001.json", b"{}")
    elsewhere = nodes(2, bucket, **options)
    elsewhere.scratch = tmp_path / "other machines"
    elsewhere.start()
    ended = elsewhere.ends()
    assert {number: code for number, (code, _) in ended.items()} == {0: 0, 1: 0}, ended
    assert "resuming at step" in ended[0][1]
    assert not [one.name for one in open_store(bucket).list("runs") if "/parts/" in one.name]
    alone = nodes(1, **{**options, "ranks": 2})
    alone.start()
    assert alone.ends()[0][0] == 0
    assert losses(model_of(bucket)) == losses(model_of(store))
    assert model_of(bucket).content_digest == model_of(store).content_digest


def test_a_store_that_does_not_answer_for_a_while_ends_no_training(nodes, store):
    """Every five seconds a node reads what node 0 says; here a folder lies in its place for ten."""
    run = nodes(2, ranks=1, steps=100_000)
    run.start()
    wait_for_step(store, 3)
    (told,) = store.glob("runs/train/*/NODES.json")
    told.rename(told.with_suffix(".away"))
    told.mkdir()
    assert run.says(1, "what node 0 says cannot be read now", seconds=30)
    time.sleep(6)
    assert all(one.poll() is None for one in run.running.values()), run.log(1)
    told.rmdir()
    told.with_suffix(".away").rename(told)
    run.running[1].send_signal(signal.SIGTERM)
    ended = run.ends()
    assert {number: code for number, (code, _) in ended.items()} == {0: 75, 1: 75}, ended


def test_other_options_on_a_node_are_refused_before_training(nodes, store):
    run = nodes(2, ranks=1, rendezvous_seconds=12)
    run.start(0)
    run.start(1, threads=2)
    ended = run.ends()
    assert {number: code for number, (code, _) in ended.items()} == {0: 75, 1: 64}, ended
    assert "node 1 has --threads 2, and node 0 1" in ended[1][1]
    assert "of 2 nodes 1 did not come" in ended[0][1]


def test_a_supervisor_that_torchrun_started_says_how_to_start_it(nodes, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    run = nodes(1)
    run.start()
    code, said = run.ends()[0]
    assert code == 64 and "started by torchrun: run `yanmo train` itself" in said, said


def test_a_node_that_finds_nobody_says_for_what_and_how_long_it_waited(nodes, store):
    run = nodes(2, ranks=1)
    with socket.create_server(("127.0.0.1", run.port)):  # who answers there is not asked
        run.start(1, rendezvous_seconds=2)
        code, said = run.ends()[1]
    assert code == 75, said
    assert f"no node 0 trains file://{store}: train/" in said and "after 2 s" in said


@pytest.mark.parametrize("begun", [False, True])
def test_a_node_that_is_to_end_while_it_waits_does_not_try_again(nodes, store, begun):
    run = nodes(4, ranks=1)
    run.start(1, wait_seconds=3600)
    if begun:
        run.start(0)
        assert _waits_for_others(store, 1)
    else:
        assert run.says(1, "node 1 of 4")
        time.sleep(1)
    for one in run.running.values():
        one.send_signal(signal.SIGTERM)
    for code, said in run.ends().values():
        assert code == 75 and "asked to stop by a signal" in said and "again in" not in said, said


@needs_proc
def test_a_node_that_is_to_end_after_it_lost_node_0_does_not_try_again(nodes, store):
    """JobSet ends the pods that are left when it has seen one fail, and waits for them."""
    run = nodes(2, ranks=1, steps=100_000)
    run.start(0)
    run.start(1, wait_seconds=3600)
    wait_for_step(store, 3)
    os.kill(run.running[0].pid, signal.SIGKILL)
    while any("yanmo.train.worker" in command for command in workers_of(store, 0)):
        time.sleep(0.1)
    time.sleep(2)  # node 1 waits for what node 0 may say last
    run.running[1].send_signal(signal.SIGTERM)
    asked = time.monotonic()
    code, said = run.ends()[1]
    assert code == 75 and "lost its connection to another rank" in said and "again in" not in said, said
    assert time.monotonic() - asked < 10


def test_a_store_that_nodes_do_not_share_is_named(nodes, store, store_template, tmp_path):
    elsewhere = Path(shutil.copytree(store_template, tmp_path / "elsewhere"))
    run = nodes(2, ranks=1, rendezvous_seconds=12)
    run.start(0)
    run.store = elsewhere
    run.start(1)
    ended = run.ends()
    assert {number: code for number, (code, _) in ended.items()} == {0: 75, 1: 75}, ended
    assert "--store has to be one that all nodes share" in ended[1][1]


def test_a_model_that_is_there_ends_every_node_at_once(nodes, trained_store, tmp_path):
    where = Path(shutil.copytree(trained_store, tmp_path / "trained"))
    run = nodes(2, where, ranks=1)
    run.start()
    assert {number: code for number, (code, _) in run.ends().items()} == {0: 0, 1: 0}


def _resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@needs_proc
def test_what_strangers_send_to_the_rendezvous_changes_nothing(nodes, store):
    """30 MB of nonsense and connections that say nothing; before, they cost 728 MB or the training."""
    run = nodes(2, ranks=1, steps=60)
    run.start()
    wait_for_step(store, 3)
    (path,) = store.glob("runs/train/*/heartbeats/rank-00000")
    rank = int(path.read_text(encoding="utf-8"))
    before = _resident(rank)
    silent = [socket.create_connection(("127.0.0.1", run.port)) for _ in range(50)]
    for what in (b"[],[]," * 5_000_000, b'{"kind": "outcome", "code": 0}\n', bytes(range(256)) * 4):
        with socket.create_connection(("127.0.0.1", run.port)) as stranger, contextlib.suppress(OSError):
            stranger.sendall(what)
    grown = _resident(rank) - before
    ended = run.ends()
    for one in silent:
        one.close()
    assert {number: code for number, (code, _) in ended.items()} == {0: 0, 1: 0}, ended
    assert grown < 100 << 20


def test_a_pod_of_several_names_no_command_that_would_train_without_the_others(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    several = TrainConfig(nnodes=2, rendezvous="node-0:29500")
    again = rerun_command(STAGE, ["--options=train.steps=9"], dataclasses.replace(several, run_id="5a1b"))
    assert again == "yanmo rerun launch --channel=dev --inputs=run:5a1b --set=train.steps=9", "its launch"
    assert rerun_command(STAGE, [], TrainConfig()) == "yanmo rerun train --channel=dev"
