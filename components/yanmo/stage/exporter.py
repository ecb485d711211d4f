"""Prometheus metrics of a stage's process: one endpoint, `yanmo_` prefix, base units.

The supervisor of a stage serves it, so that a stalled or dead worker stays visible. `run_id` is a label
of `yanmo_run_info` alone, so that series do not multiply with every run.
"""

from __future__ import annotations

import logging
import threading
import time
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, make_wsgi_app

log = logging.getLogger(__name__)


class _Server(ThreadingMixIn, WSGIServer):
    """As prometheus_client's own, but without a look-up of the machine's full name.

    The standard library's HTTP servers ask for it when they bind (http.server.HTTPServer.server_bind), which
    takes as long as a DNS server that does not answer: each stage would begin that much later.
    """

    daemon_threads = True

    def server_bind(self) -> None:
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is nothing to tell."""


class Telemetry:
    """The metrics of one run of one stage."""

    def __init__(self, stage: str, run_id: str = "", port: int = 0) -> None:
        """Args:
        stage: prefix of the stage's own metrics.
        run_id: id of the pipeline run.
        port: TCP port to serve on; 0 a free one, -1 none. A busy one is replaced by a free one.
        """
        self.stage = stage
        self.registry = CollectorRegistry()
        self._port = port
        self._gauges: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._start = time.time()
        info = Gauge("yanmo_run_info", "The run (always 1)", ["stage", "run_id"], registry=self.registry)
        info.labels(stage, run_id).set(1)
        self.gauge("start_time_seconds", "Unix time at which the stage began").set(self._start)

    def gauge(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Gauge:
        """The gauge `yanmo_<stage>_<name>`; made at first use. `name` ends in its base unit."""
        if name not in self._gauges:
            full = f"yanmo_{self.stage}_{name}"
            self._gauges[name] = Gauge(full, help, labels, registry=self.registry)
        return self._gauges[name]

    def counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Counter:
        """The counter `yanmo_<stage>_<name>_total`; made at first use."""
        if name not in self._counters:
            full = f"yanmo_{self.stage}_{name}"
            self._counters[name] = Counter(full, help, labels, registry=self.registry)
        return self._counters[name]

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def __enter__(self) -> Telemetry:
        self._server = None
        if self._port >= 0:
            for port in dict.fromkeys((self._port, 0)):
                try:
                    app = make_wsgi_app(self.registry)
                    self._server = make_server("0.0.0.0", port, app, _Server, handler_class=_Handler)
                except (OSError, OverflowError) as error:  # busy; not a port number
                    log.warning("no /metrics on port %d (%s); taking a free one", port, error)
                    continue
                # it looks each 0.05 s whether it shall end: a stage's end waits for that
                self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
                self._thread.start()
                log.debug("metrics on port %d", self._server.server_port)
                break
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
