"""/metrics: the HTTP endpoint that Prometheus scrapes.

It is prometheus_client's own threaded server and application; it answers from the first second of a process
to one scrape after its end, whatever the work does.

Of its own it would ask a name server for this machine's name: a stage would begin as much later.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app
from prometheus_client.registry import CollectorRegistry

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.05
"""How often the server looks whether it shall end: a stage's end waits for that."""


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
        return bool(self._server and most > 0 and self._server.wait_for_another(most))

    def close(self) -> None:
        """Serve no more."""
        if self._server and self._thread:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


class _Server(ThreadingWSGIServer):
    """prometheus_client's server; it knows when the last scrape began that was answered."""

    def __init__(self, port: int, everywhere: bool, registry: CollectorRegistry) -> None:
        self._metrics = make_wsgi_app(registry)
        self._answered = threading.Condition()
        self._asked, self._began = False, 0.0
        both = everywhere and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if both else socket.AF_INET
        super().__init__(("127.0.0.1" if not everywhere else "::" if both else "0.0.0.0", port), _Handler)
        self.set_app(self._answer)

    def server_bind(self) -> None:
        """As above, without asking a name server for this machine's name."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]
        self.setup_environ()

    def _answer(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        self._asked, began, said = True, time.monotonic(), list[Any]()
        body = b"".join(self._metrics(environ, lambda *given: said.extend(given)))
        status, headers = said
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        yield body
        with self._answered:  # it is written
            self._began = began
            self._answered.notify_all()

    def wait_for_another(self, most: float) -> bool:
        """Whether a scrape came that began after this call; does not wait where none ever came."""
        now = time.monotonic()
        with self._answered:
            if not self._asked:
                return False
            log.debug("waiting up to %.0f s for one more scrape", most)
            return self._answered.wait_for(lambda: self._began >= now, most)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a scrape was not answered", exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = 10.0
    """Seconds for a part of a request: Prometheus itself gives up after ten."""

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is nothing to tell."""
