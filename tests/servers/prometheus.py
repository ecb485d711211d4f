"""A real Prometheus beside a real `yanmo run`: each stage is scraped as a pod would be, while it lives.

In a cluster Prometheus finds pods by Kubernetes. Here their processes and ports are found in /proc, and get
the labels that pods have, namespace and pod. Prometheus takes in new targets every five seconds, and some
stages of a small run are over by then: so it scrapes a few ports that stay, which lead to the stages' own.
Such a stage may be over before Prometheus' first look as well: so each is asked once as soon as it answers,
and waits at its end, as any stage that somebody scrapes.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from processes import fields_of, listening

from servers.program import OPEN, started

_LOOK_SECONDS, _WAYS = 0.05, 24
NAMESPACE = "here"
CONFIG = """
global: {{scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: {interval}}}
rule_files: [{rules}]
scrape_configs:
  - job_name: yanmo
    static_configs: {targets}
"""


def absent() -> str:
    """Why there can be none here; "" where there can."""
    if not shutil.which("prometheus"):
        return "needs prometheus"
    return "" if Path("/proc/net/tcp").exists() else "needs Linux: finds processes in /proc"


def command(port: int) -> list[str]:
    """Starts one on a port of the loopback, in a folder that holds prometheus.yml."""
    return [
        *("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"),
        *("--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}"),
    ]


class Prometheus:
    """A server in a folder of its own; as a context it runs."""

    def __init__(self, folder: Path, rules: Path, interval: str = "1s") -> None:
        self._folder = folder
        self.port = free_port()
        self._ways = [_Way() for _ in range(_WAYS)]
        self._numbers = itertools.cycle(range(_WAYS))  # as no two pods have one name
        targets = [
            {"targets": [f"127.0.0.1:{way.port}"], "labels": {"namespace": NAMESPACE, "pod": f"pod-{number}"}}
            for number, way in enumerate(self._ways)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        text = CONFIG.format(interval=interval, rules=json.dumps(str(rules)), targets=json.dumps(targets))
        (folder / "prometheus.yml").write_text(text, encoding="utf-8")

    def __enter__(self) -> Self:
        self._running = started(command(self.port), self._folder, f"http://127.0.0.1:{self.port}/-/ready")
        self._running.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(None, None, None)
        for way in self._ways:
            way.shutdown()
            way.server_close()

    def ask(self, what: str, **parameters: str) -> Any:
        """`data` of an answer of its API.

        Raises:
            OSError: it is not there, or refuses the question.
        """
        with OPEN(
            f"http://127.0.0.1:{self.port}/api/v1/{what}?{urlencode(parameters)}", timeout=30
        ) as answer:
            return json.load(answer)["data"]

    def over(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of a query between two times: `metric` (labels) and `values` (pairs of time, text)."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        found: list[dict[str, Any]] = self.ask("query_range", query=expression, **times)["result"]
        return found

    def run(self, command: list[str], cwd: Path, environment: Mapping[str, str], log: Path) -> int:
        """Run a command to its end, scraped beside its children; its exit code."""
        with self.beside(command, cwd, environment, log) as process:
            return process.wait()

    @contextmanager
    def beside(
        self, command: list[str], cwd: Path, environment: Mapping[str, str], log: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The same while the context lasts; it is ended then, if it has not."""
        with log.open("ab") as said:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, "YANMO_METRICS_WAIT_SECONDS": "20", **environment},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(process.pid, ended), daemon=True)
        thread.start()
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            ended.set()
            thread.join()

    def _follow(self, root: int, ended: threading.Event) -> None:
        """Lead ways to the command itself and its own children: theirs are the ranks of a training."""
        served: dict[int, _Way] = {}
        while not ended.wait(_LOOK_SECONDS):
            of_stages = self._of(root)
            for pid in served.keys() - of_stages:
                served.pop(pid).leads_to = 0
            for pid in of_stages - served.keys():
                for port in listening(pid):
                    served[pid] = way = self._free_way()
                    way.leads_to = port
                    threading.Thread(target=_ask_once, args=(port,), daemon=True).start()
        for way in served.values():
            way.leads_to = 0

    def _free_way(self) -> _Way:
        """The one that nothing has used for longest."""
        return next(way for number in self._numbers if not (way := self._ways[number]).leads_to)

    @staticmethod
    def _of(root: int) -> set[int]:
        everyone = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return {pid for pid in everyone if fields_of(pid)[1:2] == [str(root)]} | {root}


def _ask_once(port: int) -> None:
    with suppress(OSError):  # it is over, or speaks something else
        OPEN(f"http://127.0.0.1:{port}/metrics", timeout=30).read()


class _Way(socketserver.ThreadingTCPServer):
    """A port that leads to another one, which may change."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.leads_to = 0
        """0: nowhere."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Connection(socketserver.BaseRequestHandler):
    server: _Way

    def handle(self) -> None:
        if not self.server.leads_to:
            return
        try:
            with socket.create_connection(("127.0.0.1", self.server.leads_to)) as other:
                back = threading.Thread(target=_carry, args=(other, self.request), daemon=True)
                back.start()
                _carry(self.request, other)
                back.join()
        except OSError:
            return


def _carry(one: socket.socket, other: socket.socket) -> None:
    """All that comes from one to the other, until either ends."""
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def yanmo(*words: str) -> list[str]:
    """A command of Yanmo's, of this interpreter."""
    return [sys.executable, "-m", "yanmo.cli", *words]


def free_port() -> int:
    """A TCP port of the loopback that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
