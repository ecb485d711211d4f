"""/metrics: the HTTP endpoint that Prometheus scrapes.

It answers from threads of its own, so that it is there from the first second of a process to one scrape after
its end, whatever the work does. A scraper that sends or reads nothing holds one of a few connections for ten
seconds; many scrapes share an answer that is a quarter of a second old at most.

Alternative not taken: prometheus_client's own server. It asks a name server for this machine's name (a stage
would begin as much later as that takes), has threads without end, and makes each answer again.
"""

from __future__ import annotations

import gzip
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest, gzip_accepted
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import CollectorRegistry

from yanmo.common.errors import EnvironmentFault, in_words

log = logging.getLogger(__name__)
_CONNECTIONS = 32
"""Scrapes answered at a time; what comes besides is turned away."""
_STUCK_SECONDS = 10.0
"""How long a scraper may send or read nothing: Prometheus itself gives up after ten seconds."""
_FRESH_SECONDS = 0.25
_POLL_SECONDS = 0.05
"""How often the server looks whether it shall end: a stage's end waits for that."""
_LATE, _LATE_SECONDS = 1.25, 5.0
"""A scraper that has not come within its own interval, this part of it and these seconds, comes no more. The
seconds are for a busy process: what it answers after a scraper's time limit was no answer."""


class Endpoint:
    """Serves a registry on a port, from `start` to `close`."""

    def __init__(self, registry: CollectorRegistry, port: int, everywhere: bool) -> None:
        self._answers = _Answers(registry)
        self._asked, self._everywhere = port, everywhere
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Where it is served; -1 while it is not."""
        return int(self._server.server_address[1]) if self._server else -1

    def start(self, *, or_another: bool = True) -> None:
        """Serve; on a free port where the one that was asked for is taken, if `or_another`.

        Raises:
            EnvironmentFault: it is taken, and none other will do.
        """
        for port in dict.fromkeys((self._asked, 0)):
            try:
                self._server = _Server(port, self._everywhere, self._answers.of)
            except (OSError, OverflowError) as error:  # busy; not a port number
                if not or_another:
                    raise EnvironmentFault(
                        f"cannot serve /metrics on port {port}: {in_words(error)}"
                    ) from error
                log.warning("no /metrics on port %d (%s); taking a free one", port, error)
                continue
            self._thread = threading.Thread(
                target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True, name="metrics"
            )
            self._thread.start()
            log.debug("metrics on port %d", self.port)
            return

    def wait_for_scrape(self, most: float) -> bool:
        """Wait until a scraper that has come before has come once more, so that it has seen the end.

        Args:
            most: seconds; 0 does not wait.
        """
        return bool(self._server and most > 0 and self._server.scrapes.wait_for_another(most))

    def close(self) -> None:
        """Serve no more."""
        if self._server and self._thread:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


class _Answers:
    """The text of the registry, in each format that is asked for, made again when it is no longer fresh."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry, self._lock = registry, threading.Lock()
        self._made: dict[tuple[bool, bool], tuple[float, bytes]] = {}

    def of(self, accept: str, encoding: str) -> tuple[bytes, dict[str, str]]:
        """Body and headers for what a scraper accepts."""
        key = is_open, packed = "application/openmetrics-text" in accept, gzip_accepted(encoding)
        encode = openmetrics.generate_latest if is_open else generate_latest
        content_type = openmetrics.CONTENT_TYPE_LATEST if is_open else CONTENT_TYPE_PLAIN_0_0_4
        with self._lock:  # one makes it, the others wait for it
            at, body = self._made.get(key, (float("-inf"), b""))
            now = time.monotonic()
            if now - at > _FRESH_SECONDS:
                body = encode(self._registry)
                body = gzip.compress(body, 1) if packed else body
                self._made[key] = (now, body)
        return body, {"Content-Type": content_type, **({"Content-Encoding": "gzip"} if packed else {})}


class _Scrapes:
    """When scrapes began that were answered."""

    def __init__(self) -> None:
        self._answered = threading.Condition()
        self._began: deque[float] = deque(maxlen=2)
        self._asked = False

    def asked(self) -> None:
        """Somebody scrapes."""
        self._asked = True

    def answered(self, began: float) -> None:
        """Somebody has the answer to a scrape that began then."""
        with self._answered:
            self._began.append(began)
            self._answered.notify_all()

    def wait_for_another(self, most: float) -> bool:
        """Whether one came that began after this call; does not wait where none can be expected in time."""
        now = time.monotonic()
        with self._answered:
            if not self._asked:
                return False
            until = now + most
            if len(self._began) == 2:
                due = self._began[1] + _LATE * (self._began[1] - self._began[0]) + _LATE_SECONDS
                if due < now:
                    return False
                until = min(until, due)
            log.debug("waiting up to %.0f s for one more scrape", until - now)
            self._answered.wait_for(lambda: self._has(now), until - now)
            return self._has(now)

    def _has(self, since: float) -> bool:
        return bool(self._began) and self._began[-1] >= since


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self, port: int, everywhere: bool, answer: Callable[[str, str], tuple[bytes, dict[str, str]]]
    ) -> None:
        self.answer, self.scrapes = answer, _Scrapes()
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        self._both = everywhere and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if self._both else socket.AF_INET
        host = "127.0.0.1" if not everywhere else "::" if self._both else "0.0.0.0"
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        if self._both:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a scrape was not answered", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _STUCK_SECONDS
    server_version, sys_version = "yanmo", ""

    def do_GET(self) -> None:
        began = time.monotonic()
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(404)
            return
        self.server.scrapes.asked()
        body, headers = self.server.answer(
            self.headers.get("Accept", ""), self.headers.get("Accept-Encoding", "")
        )
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
            self.server.scrapes.answered(began)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is nothing to tell."""
