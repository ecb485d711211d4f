"""Node 0 and those that come to it, over real sockets."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import socket
import time

import pytest
from node_zero import IDENTITY, answer, node, options

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.store.manifest import Reference
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob
from yanmo.train.nodes.leader import Leader
from yanmo.train.nodes.outcome import Outcome
from yanmo.train.nodes.reception import PROTOCOL
from yanmo.train.nodes.wire import NodeLost


def test_nodes_that_come_and_are_ready_are_gathered_and_told_how_it_ended():
    asked = options()
    leader = Leader(asked)
    with leader.listening(IDENTITY), node(asked, 2) as second, node(asked, 1) as first:
        for wire in (first, second):
            assert answer(wire)["kind"] == "welcome"
            wire.send("ready")
        leader.gather([])
        leader.close(Outcome(75, "asked to stop"))
        for wire in (first, second):
            told = answer(wire)
            assert told.pop("kind") == "outcome"
            assert Outcome.from_message(told) == Outcome(75, "asked to stop")
            wire.close()


def test_nodes_that_do_not_come_are_named_after_the_wait():
    asked = options()
    leader = Leader(asked)
    with leader.listening(IDENTITY), node(asked, 1) as first:
        assert answer(first)["kind"] == "welcome"
        with pytest.raises(NodeLost, match=r"node 2 of 3 did not come to 127\.0\.0\.1"):
            leader.gather([])
        first.close()


def test_a_node_that_goes_before_the_training_has_begun_may_come_again():
    asked = options(nnodes=2)
    leader = Leader(asked)
    with leader.listening(IDENTITY):
        with node(asked, 1) as first:
            assert answer(first)["kind"] == "welcome"
        with pytest.raises(NodeLost, match="node 1 of 2 did not come"):
            leader.gather([])
        _comes_and_is_gathered(asked, leader)


def test_a_request_to_stop_any_node_is_one_for_all():
    asked = options(nnodes=2, rendezvous_seconds=60.0)
    leader, stopping = Leader(asked), []
    with leader.listening(IDENTITY), node(asked, 1) as first:
        assert answer(first)["kind"] == "welcome"
        first.send("stop")
        leader.gather(stopping)
        assert len(stopping) == 1
        first.close()


@pytest.mark.parametrize(
    ("other", "error", "said"),
    [
        (
            {"code": {"yanmo": "2", "torch": "2"}},
            EnvironmentFault,
            "another version of yanmo: 2, and node 0 1",
        ),
        ({"code": {"yanmo": "1"}}, EnvironmentFault, "another version of torch: none, and node 0 2"),
        (
            {"options": {**IDENTITY.options, "threads": 2}},
            UsageError,
            "node 1 has --threads 2, and node 0 1: give all nodes the same command",
        ),
        (
            {"options": {**IDENTITY.options, "nnodes": 2}},
            UsageError,
            "node 1 has --nnodes 2, and node 0 3: give all nodes the same command",
        ),
        (
            {"inputs": {"token_cache": "b" * 64}, "key": "l" * 64},
            UsageError,
            "node 1 has another token_cache: bbbbbbbbbbbbbbbb, and node 0 aaaaaaaaaaaaaaaa",
        ),
    ],
)
def test_a_node_of_another_training_is_refused_by_name_on_both_sides(other, error, said):
    asked = options()
    leader = Leader(asked)
    with leader.listening(IDENTITY), node(asked, 1, dataclasses.replace(IDENTITY, **other)) as wire:
        found = answer(wire)
        assert found["kind"] == "refused" and said in found["message"]
        with pytest.raises(error, match=re.escape(said)) as raised:
            leader.gather([])
        assert Outcome.of(raised.value).code == found["code"]


def test_a_number_that_is_taken_is_refused_and_the_first_stays(caplog):
    asked = options(nnodes=2)
    leader = Leader(asked)
    with leader.listening(IDENTITY), node(asked, 1) as first:
        assert answer(first)["kind"] == "welcome"
        first.send("ready")
        with node(asked, 1) as second:
            found = answer(second)
        assert found["code"] == 64 and "--node-rank 1 is taken: 127.0.0.1 has it" in found["message"]
        leader.gather([])
        first.close()


HELLO = {"kind": "hello", "protocol": PROTOCOL, "node": 1, "identity": dataclasses.asdict(IDENTITY)}


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"kind": "hello"}\n',
        b'{"kind": "start"}\n',
        json.dumps({**HELLO, "node": math.inf}).encode() + b"\n",
        json.dumps({**HELLO, "identity": [1, 2]}).encode() + b"\n",
        json.dumps({**HELLO, "identity": {**HELLO["identity"], "options": [["a"]]}}).encode() + b"\n",
        b'{"kind": "' + b"x" * (2 << 20),
    ],
)
def test_a_stranger_disturbs_nobody(garbage):
    asked = options(nnodes=2)
    leader = Leader(asked)
    with leader.listening(IDENTITY):
        with socket.create_connection(asked.meeting_point()) as stranger:
            stranger.settimeout(20)
            with contextlib.suppress(OSError):  # closed while it was still sending
                stranger.sendall(garbage)
                while stranger.recv(1000):  # until it is closed
                    pass
        _comes_and_is_gathered(asked, leader)


def test_a_node_in_the_place_of_one_that_is_silent_waits_until_that_is_gone():
    asked = options(nnodes=2, rendezvous_seconds=60.0)
    leader = Leader(asked)
    with leader.listening(IDENTITY), socket.create_connection(asked.meeting_point()) as cut_off:
        cut_off.sendall(json.dumps(HELLO).encode() + b"\n")
        (known,) = _eventually(lambda: list(leader._nodes.values()))
        _eventually(lambda: known.wire.is_quiet)
        with node(asked, 1) as again:
            time.sleep(0.5)
            assert again.take() is None, "neither welcome nor refused for good"
            cut_off.close()
            assert answer(again)["kind"] == "welcome"
            again.close()


def _comes_and_is_gathered(asked: TrainConfig, leader: Leader) -> None:
    with node(asked, 1) as it:
        assert answer(it)["kind"] == "welcome"
        it.send("ready")
        leader.gather([])
        it.close()


def _eventually(look):
    end = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def begun(leader: Leader, of: TrainConfig, folder) -> None:
    """Node 0 lets all start their ranks."""
    cache = Reference(
        stage="tokenize", key="c" * 64, manifest_uri="m", manifest_sha256="d" * 64, content_digest="e" * 64
    )
    job = WorkerJob(of, str(folder), cache, None, folder)
    leader.begin(job, "runs/train/key")


def test_what_belongs_to_ranks_that_were_ended_does_not_count_for_those_that_follow(tmp_path):
    asked = options(nnodes=2)
    leader = Leader(asked)
    with leader.listening(IDENTITY), node(asked, 1) as first:
        assert answer(first)["kind"] == "welcome"
        first.send("ready")
        leader.gather([])
        begun(leader, asked, tmp_path)
        begun(leader, asked, tmp_path)
        windows = [answer(first)["window"], answer(first)["window"]]
        late = {"codes": {}, "looks": {}, "doings": {}, "said": {}, "killed": [], "tail": ""}
        first.send("status", window=windows[0], status={"rank": 1, "state": "failed"})
        first.send("ended", window=windows[0], **late)
        first.send("status", window=windows[1], status={"rank": 1, "state": "done", "time": 1e12})
        (status,) = _eventually(lambda: leader.look([], tmp_path / "stop"))
        assert status.state == "done" and abs(status.time - time.time()) < 60, "by node 0's clock"
        assert not leader.have_ended
        first.send("ended", window=windows[1], **late)
        _eventually(lambda: leader.look([], tmp_path / "stop") or leader.have_ended)
        first.close()


def test_nothing_of_the_surroundings_travels(tmp_path):
    asked = options(nnodes=2, endpoint="http://geheim", run_id="geheim", sinks="wandb=geheim")
    leader = Leader(asked)
    with leader.listening(IDENTITY), node(asked, 1) as first:
        assert answer(first)["kind"] == "welcome"
        first.send("ready")
        leader.gather([])
        begun(leader, asked, tmp_path)
        told = answer(first)
        assert told["kind"] == "start" and "geheim" not in json.dumps(told)
        assert told["job"]["options"]["batch_rows"] == 12
        first.close()


@pytest.mark.parametrize("broken", [{"status": []}, {"status": {"rank": 1, "shape": 2}}, {}])
def test_a_node_that_sends_what_cannot_be_read_is_lost(broken, tmp_path):
    asked = options(nnodes=2)
    leader = Leader(asked)
    with leader.listening(IDENTITY), node(asked, 1) as first:
        assert answer(first)["kind"] == "welcome"
        first.send("ready")
        leader.gather([])
        begun(leader, asked, tmp_path)
        first.send("status", window=1, **broken)
        with pytest.raises(NodeLost, match="node 1 sent what cannot be read"):
            _eventually(lambda: leader.look([], tmp_path / "stop"))
        first.close()


def test_who_comes_when_all_is_over_is_told_how_it_ended():
    asked = options(nnodes=2)
    leader = Leader(asked)
    with leader.listening(IDENTITY):
        leader.close(Outcome(65, "the text is damaged"))
        with node(asked, 1) as late:
            told = answer(late)
            assert (told["kind"], told["code"]) == ("outcome", 65)


def test_a_node_that_stands_still_is_lost(tmp_path):
    asked = options(nnodes=2, standstill_seconds=40.0)
    object.__setattr__(asked, "standstill_seconds", 1.5)  # below what a person may give
    leader = Leader(asked)
    with leader.listening(IDENTITY), socket.create_connection(asked.meeting_point()) as frozen:
        hello = {"kind": "hello", "protocol": PROTOCOL, "node": 1, "identity": dataclasses.asdict(IDENTITY)}
        frozen.sendall(json.dumps(hello).encode() + b'\n{"kind": "ready"}\n')
        leader.gather([])
        end = time.monotonic() + 20
        lost = r"node 1 of 2, at 127\.0\.0\.1, has given no sign of life for 1 s"
        with pytest.raises(NodeLost, match=lost):
            while time.monotonic() < end:
                leader.look([], tmp_path / "stop")
                time.sleep(0.05)


def test_a_port_that_is_taken_is_a_matter_of_the_machine():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        asked = options(rendezvous=f"127.0.0.1:{taken.getsockname()[1]}")
        with (
            pytest.raises(EnvironmentFault, match="node 0 cannot listen at port"),
            Leader(asked).listening(IDENTITY),
        ):
            pass
