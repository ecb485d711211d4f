"""/metrics: the HTTP endpoint that Prometheus scrapes.

It is prometheus_client's own threaded server and application; it answers from the first second of a process
to one scrape after its end, whatever the work does. Connections are capped in number, where the oldest makes
room for the newest, and in how long they last: scrapers that send a byte now and then keep nobody out.

Of its own it would ask a name server for this machine's name: a stage would begin as much later.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app
from prometheus_client.registry import CollectorRegistry

log = logging.getLogger(__name__)
_CONNECTIONS = 32
"""At a time; one more cuts the oldest."""
_LONGEST_SECONDS = 10.0
"""Of a connection: Prometheus itself gives up after ten seconds."""
_POLL_SECONDS = 0.05
"""How often the server looks whether it shall end: a stage's end waits for that."""
_LATE, _LATE_SECONDS = 1.25, 5.0
"""A scraper that has not come within its own interval, this part of it and these seconds, comes no more. The
seconds are for a busy process: what it answers after a scraper's time limit was no answer."""


class Endpoint:
    """Serves a registry on a port, from `start` to `close`."""

    def __init__(self, registry: CollectorRegistry, port: int, everywhere: bool) -> None:
        self._registry = registry
        self._asked, self._everywhere = port, everywhere
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Where it is served; -1 while it is not."""
        return int(self._server.server_address[1]) if self._server else -1

    def start(self) -> None:
        """Serve; on a free port where the one that was asked for is taken."""
        for port in dict.fromkeys((self._asked, 0)):
            try:
                self._server = _Server(port, self._everywhere, self._registry)
            except (OSError, OverflowError) as error:  # busy; not a port number
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
        """Return whether a scrape came that began after this call; do not wait where none can be expected."""
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


class _Server(ThreadingWSGIServer):
    """prometheus_client's server, with a cap on connections and on how long one lasts."""

    request_queue_size = 128

    def __init__(self, port: int, everywhere: bool, registry: CollectorRegistry) -> None:
        self.scrapes, self._metrics = _Scrapes(), make_wsgi_app(registry)
        self._began = dict[Any, float]()
        """Connection -> when it began, the oldest first."""
        self._lock = threading.Lock()
        self._both = everywhere and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if self._both else socket.AF_INET
        host = "127.0.0.1" if not everywhere else "::" if self._both else "0.0.0.0"
        super().__init__((host, port), _Handler)
        self.set_app(self._answer)

    def server_bind(self) -> None:
        """As above, without asking a name server for this machine's name."""
        if self._both:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]
        self.setup_environ()

    def _answer(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        began, said = time.monotonic(), list[Any]()
        self.scrapes.asked()
        body = b"".join(self._metrics(environ, lambda *given: said.extend(given)))
        status, headers = said
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        yield body
        self.scrapes.answered(began)  # it is written

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._began)) if len(self._began) >= _CONNECTIONS else None
            if oldest is not None:
                self._cut(oldest)
            self._began[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Cut connections that last too long, however busy they look."""
        with self._lock:
            for one in [o for o, at in self._began.items() if time.monotonic() - at > _LONGEST_SECONDS]:
                self._cut(one)

    def _cut(self, connection: Any) -> None:
        """The thread that reads or writes it sees its end, and closes it."""
        del self._began[connection]
        with contextlib.suppress(OSError):  # it has ended
            connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a scrape was not answered", exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = _LONGEST_SECONDS

    def get_stderr(self) -> Any:
        """Drop what wsgiref says of a scraper that left."""
        return io.StringIO()

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is nothing to tell."""
