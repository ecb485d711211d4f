"""A connection that is silent though both ends live, through a relay that swallows what goes over it."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from node_zero import IDENTITY, answer, options

from yanmo.train.config import TrainConfig
from yanmo.train.nodes.leader import Leader
from yanmo.train.nodes.reception import PROTOCOL
from yanmo.train.nodes.still_there import asking
from yanmo.train.nodes.wire import NodeLost, Wire

SILENCE_SECONDS = 20.0
"""Longer than a node takes to ask, which it does after six seconds without a beat."""


class Relay:
    """Passes on what goes to a port, until a connection is to be swallowed: it stays open, and silent."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to, self._open = to, list[socket.socket]()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.where: tuple[str, int] = self._server.getsockname()
        self.swallows_old = self.swallows_all = False
        self.swallows_back = True
        """Also what comes back over the old ones."""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                is_old = not self.swallows_old
                with contextlib.suppress(ConnectionRefusedError):
                    far = socket.create_connection(self._to)
                    self._open += [near, far]
                    for ends in ((near, far, is_old, False), (far, near, is_old, True)):
                        self._threads.append(threading.Thread(target=self._pass, args=ends, daemon=True))
                        self._threads[-1].start()
                    continue
                near.close()

    def _pass(self, one: socket.socket, other: socket.socket, is_old: bool, is_back: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                swallowed = is_old and self.swallows_old and (self.swallows_back or not is_back)
                if not (self.swallows_all or swallowed):
                    other.sendall(data)
            if not (is_old and self.swallows_old):
                other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in (self._server, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def asked() -> TrainConfig:
    return options(nnodes=2, standstill_seconds=40.0)


@pytest.fixture
def relay(asked):
    made = Relay(asked.meeting_point())
    yield made
    made.close()


@contextlib.contextmanager
def welcomed(relay: Relay) -> Iterator[Wire]:
    """The connection of node 1 to node 0, which is ready."""
    wire = Wire(socket.create_connection(relay.where))
    try:
        wire.send("hello", protocol=PROTOCOL, node=1, identity=dataclasses.asdict(IDENTITY))
        wire.token = answer(wire)["token"]
        wire.send("ready")
        yield wire
    finally:
        wire.close()


def most_silent(wire: Wire, leader: Leader, stop, seconds: float) -> float:
    """Longest silence of node 0, as node 1 sees it, in so many seconds; node 0 looks as often."""
    longest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        leader.look([], stop)
        longest = max(longest, wire.silent())
        time.sleep(0.05)
    return longest


@pytest.mark.parametrize("both_ways", [True, False])
def test_a_silent_connection_is_no_lost_node_while_a_new_one_is_answered(asked, relay, tmp_path, both_ways):
    leader = Leader(asked)
    relay.swallows_back = both_ways
    object.__setattr__(asked, "standstill_seconds", 1.5 * SILENCE_SECONDS)
    with leader.listening(IDENTITY), welcomed(relay) as wire, asking(wire, relay.where):
        leader.gather([])
        relay.swallows_old = True
        longest = most_silent(wire, leader, tmp_path / "stop", 1.5 * SILENCE_SECONDS)
        assert longest < SILENCE_SECONDS and (longest > 5) == both_ways
        assert not wire.is_closed


def test_a_node_that_answers_over_no_connection_is_lost(asked, relay, tmp_path):
    leader = Leader(asked)
    object.__setattr__(asked, "standstill_seconds", 1.5 * SILENCE_SECONDS)
    with leader.listening(IDENTITY), welcomed(relay) as wire, asking(wire, relay.where):
        leader.gather([])
        relay.swallows_old = relay.swallows_all = True
        began = time.monotonic()
        with pytest.raises(NodeLost, match=r"node 1 of 2, .* has given no sign of life for 20 s"):
            most_silent(wire, leader, tmp_path / "stop", 10 * SILENCE_SECONDS)
        assert time.monotonic() - began > SILENCE_SECONDS - 3
        assert wire.silent() > SILENCE_SECONDS - 3


def test_a_node_0_that_was_started_anew_is_not_the_one_that_had_begun(asked, relay):
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(Leader(asked).listening(IDENTITY))
        wire = second.enter_context(welcomed(relay))
        second.enter_context(asking(wire, relay.where))
        relay.swallows_old = True
        first.close()
        assert not wire.is_closed, "that node 0 is gone does not arrive"
        second.enter_context(Leader(asked).listening(IDENTITY))
        end = time.monotonic() + 60
        while not wire.is_over and time.monotonic() < end:
            time.sleep(0.05)
        assert wire.is_over
