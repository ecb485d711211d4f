"""Messages between nodes, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from yanmo.train.nodes.wire import Wire, interface_of


@pytest.fixture
def ends():
    """Two sockets that are connected; they are closed afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    with here, there:
        yield here, there


def until(condition, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def test_messages_arrive_whole_and_in_order(ends):
    one, other = map(Wire, ends)
    try:
        long = "研墨" * 50_000
        one.send("first", text=long)
        one.send("second", number=2)
        found = []
        assert until(lambda: found.append(other.take()) or len([m for m in found if m]) == 2)
        assert [m for m in found if m] == [{"kind": "first", "text": long}, {"kind": "second", "number": 2}]
        assert one.peer == other.here == "127.0.0.1"
    finally:
        one.close()
        other.close()


def test_an_end_that_is_closed_is_seen_after_what_it_said(ends):
    one, other = map(Wire, ends)
    one.send("last words")
    one.close()
    try:
        assert until(lambda: other.is_closed)
        other.send("too late")  # nothing happens
        assert not other.is_over
        assert other.take() == {"kind": "last words"}
        assert other.is_over
    finally:
        other.close()


def test_what_cannot_be_sent_closes_the_connection_for_both_after_what_was_said(ends):
    stranger, other = ends[0], Wire(ends[1])
    try:
        stranger.sendall(b'{"kind": "outcome"}\n')
        ends[1].settimeout(0.2)
        other.send("long", text="x" * (64 << 20))  # nobody reads it
        assert until(lambda: other.is_closed)
        assert other.take() == {"kind": "outcome"}
        stranger.settimeout(20)
        while stranger.recv(1 << 20):  # to its end
            pass
    finally:
        other.close()


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b'{"kind": 1}\n', b"[" * 100_000 + b"\n", b"x" * (1 << 21)],
)
def test_what_is_no_message_closes_the_connection(ends, garbage):
    stranger, other = ends[0], Wire(ends[1])
    try:
        stranger.settimeout(20)
        with contextlib.suppress(OSError):  # closed while it was still sending
            stranger.sendall(garbage)
        assert until(lambda: other.is_closed)
        assert other.take() is None
    finally:
        other.close()


def test_an_end_that_stands_still_is_silent_though_connected(ends):
    other = Wire(ends[1])
    try:
        assert other.silent() == 0
        time.sleep(0.3)
        assert 0.2 < other.silent() < 20 and not other.is_closed
        ends[0].sendall(b'{"kind": "beat"}\n')
        assert until(lambda: other.silent() < 0.2)
        assert other.take() is None, "a beat is no message"
    finally:
        other.close()


def test_the_interface_of_an_address_is_named():
    assert interface_of("127.0.0.1") in ("lo", "lo0")
    assert interface_of("::ffff:127.0.0.1") in ("lo", "lo0")
    assert interface_of("203.0.113.7") == "", "no machine has it"
