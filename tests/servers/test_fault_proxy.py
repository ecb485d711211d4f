"""The proxy does to real requests what it says it does."""

from __future__ import annotations

import hashlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from servers.fault_proxy import PLACES, FaultProxy, Faults

BODY = bytes(range(256)) * 2000
"""Half a megabyte: more than a socket's buffers hold."""


class Upstream(ThreadingHTTPServer):
    """Answers GET with BODY and PUT with the sha256 of what came; remembers the whole PUTs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[bytes] = []
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Broken connections are the point here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_GET(self) -> None:
        self.answer(BODY)

    def do_PUT(self) -> None:
        length = int(self.headers["Content-Length"])
        data = self.rfile.read(length)
        if len(data) == length:
            self.server.received.append(data)
            self.answer(hashlib.sha256(data).hexdigest().encode())

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def only(kind: str, **more: float) -> Faults:
    return Faults(rates={kind: 1.0}, **more)  # type: ignore[arg-type]


def ask(proxy: FaultProxy, method: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, "/x", body=body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


BROKEN = (ConnectionError, http.client.HTTPException)


def test_without_faults_bytes_pass_both_ways_unchanged(upstream: Upstream) -> None:
    with FaultProxy(upstream.endpoint, Faults.evenly(0), 1) as proxy:
        assert ask(proxy, "GET") == (200, BODY)
        assert ask(proxy, "PUT", BODY) == (200, hashlib.sha256(BODY).hexdigest().encode())
        assert proxy.met == {"none": 2}


@pytest.mark.parametrize("kind", ["cut_request", "truncate_request"])
def test_a_broken_request_does_no_work(upstream: Upstream, kind: str) -> None:
    with FaultProxy(upstream.endpoint, only(kind, delay_seconds=0.2), 1) as proxy:
        for _ in range(5):
            with pytest.raises(BROKEN):
                ask(proxy, "PUT", BODY)
    assert upstream.received == []


@pytest.mark.parametrize("kind", ["cut_response", "truncate_response"])
def test_a_broken_answer_never_looks_whole(upstream: Upstream, kind: str) -> None:
    with FaultProxy(upstream.endpoint, only(kind), 1) as proxy:
        for _ in range(5):
            with pytest.raises(BROKEN):
                ask(proxy, "GET")


def test_a_swallowed_answer_leaves_the_work_done(upstream: Upstream) -> None:
    with FaultProxy(upstream.endpoint, only("swallow"), 1) as proxy, pytest.raises(BROKEN):
        ask(proxy, "PUT", BODY)
    assert upstream.received == [BODY]


def test_a_cut_head_leaves_the_work_done_and_ends_in_every_place(upstream: Upstream) -> None:
    heads = []
    with FaultProxy(upstream.endpoint, only("cut_head"), 1) as proxy:
        host, _, port = proxy.endpoint.removeprefix("http://").partition(":")
        for _ in range(40):
            with socket.create_connection((host, int(port)), timeout=10) as client:
                client.sendall(b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nshort")
                heads.append(b"".join(iter(lambda: client.recv(4096), b"")))
        assert set(proxy.cuts) == set(PLACES)
    assert upstream.received == [b"short"] * 40
    assert all(head and b"\r\n\r\n" not in head for head in heads) and len(set(heads)) > 15


def test_it_answers_500_503_and_429_itself(upstream: Upstream) -> None:
    found = set()
    with FaultProxy(upstream.endpoint, only("status"), 1) as proxy:
        for _ in range(30):
            try:
                found.add(ask(proxy, "PUT", b"short")[0])
            except BROKEN:  # it answered and closed before our body was out
                continue
    assert found == {500, 503, 429} and upstream.received == []


def test_delays_and_slow_lines_cost_time_and_nothing_else(upstream: Upstream) -> None:
    slow = only("throttle", throttle_bytes_per_second=1_000_000, throttle_seconds=5)
    with FaultProxy(upstream.endpoint, slow, 1) as proxy:
        began = time.monotonic()
        assert ask(proxy, "GET") == (200, BODY)
        assert time.monotonic() - began > 0.4
    with FaultProxy(upstream.endpoint, only("delay", delay_seconds=0.2), 1) as proxy:
        assert ask(proxy, "GET") == (200, BODY)
