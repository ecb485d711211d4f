"""A KFP that keeps recurring runs, pipelines and experiments, and may be stopped after any request.

It answers as KFP 2.17.0 does (tests/cluster/test_schedules.py asks the same of a real one): made ones have an
id, several may have one name, `:enable` and `:disable` change `status`, filters are for equal names.
"""

from __future__ import annotations

import functools
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from yanmo_pipelines.parameters import documents_of


class Stopped(Exception):
    """It answers nothing more."""


class RecurringKfp:
    """What it holds."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.pipelines: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, dict[str, Any]] = {}
        self.experiments: dict[str, dict[str, Any]] = {}
        self.changes: list[str] = []
        self.most_changes = 10**9
        """It stops answering, as if we were killed, before the next change."""
        self.most_enabled = 0
        self.lock = threading.Lock()
        self._next = 0

    def _id(self, what: str) -> str:
        self._next += 1
        return f"{what}-{self._next}"

    def answer(self, method: str, path: str, body: bytes) -> Any:
        url = urlsplit(path)
        place, query = url.path.removeprefix("/apis/v2beta1"), parse_qs(url.query)
        if method != "GET":
            if len(self.changes) >= self.most_changes:
                raise Stopped
            self.changes.append(f"{method} {re.sub('-[0-9]+', '', place)}")
        found = self._answer(method, place, query, body)
        on = [run for run in self.runs.values() if run["status"] == "ENABLED"]
        self.most_enabled = max(self.most_enabled, len(on))
        return found

    def _answer(self, method: str, place: str, query: dict[str, list[str]], body: bytes) -> Any:
        if place == "/healthz":
            return {"multi_user": False}
        if place.startswith("/recurringruns"):
            return self._recurring(method, place, query, body)
        if place == "/experiments":
            if method == "GET":
                return {"experiments": _equal(self.experiments, query)}
            made = json.loads(body) | {"experiment_id": self._id("experiment")}
            return self.experiments.setdefault(made["experiment_id"], made)
        if match := re.fullmatch(r"/experiments/(.+)", place):
            return self.experiments.get(match[1])
        if match := re.fullmatch(r"/pipelines/names/(.+)", place):
            return next((p for p in self.pipelines.values() if p["name"] == match[1]), None)
        if place == "/pipelines":
            made = json.loads(body) | {"pipeline_id": self._id("pipeline")}
            return self.pipelines.setdefault(made["pipeline_id"], made)
        if place == "/pipelines/upload_version":
            documents = _documents(body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0])
            spec = {"pipeline_spec": documents[0], "platform_spec": documents[1]}
            id, name = self._id("version"), query["name"][0]
            made = {"pipeline_version_id": id, "display_name": name, "name": name, "pipeline_spec": spec}
            return self.versions.setdefault(id, made)
        if match := re.fullmatch(r"/pipelines/[^/]+/versions/(.+)", place):
            return self.versions.get(match[1])
        if re.fullmatch(r"/pipelines/[^/]+/versions", place):
            return {"pipeline_versions": _equal(self.versions, query)}
        return None

    def _recurring(self, method: str, place: str, query: dict[str, list[str]], body: bytes) -> Any:
        if place == "/recurringruns":
            if method == "GET":
                return {"recurringRuns": _equal(self.runs, query)}
            made = json.loads(body)
            made |= {"recurring_run_id": self._id("run"), "created_at": f"{self._next:09}"}
            made["status"] = "ENABLED" if made.pop("mode") == "ENABLE" else "DISABLED"
            return self.runs.setdefault(made["recurring_run_id"], made)
        id, _, verb = place.removeprefix("/recurringruns/").partition(":")
        if id not in self.runs:
            return None
        if method == "DELETE":
            assert query == {"propagation_policy": ["ORPHAN"]}, "else KFP deletes the night that goes on"
            del self.runs[id]
        else:
            self.runs[id]["status"] = {"enable": "ENABLED", "disable": "DISABLED"}[verb]
        return {}


@functools.cache
def _documents(uploaded: bytes) -> Any:
    return documents_of(uploaded.decode())


def _equal(held: dict[str, dict[str, Any]], query: dict[str, list[str]]) -> list[dict[str, Any]]:
    if "filter" not in query:
        return list(held.values())
    (one,) = json.loads(query["filter"][0])["predicates"]
    assert one["operation"] == "EQUALS"
    return [each for each in held.values() if each.get(one["key"]) == one["string_value"]]


@contextmanager
def serving(kfp: RecurringKfp) -> Iterator[str]:
    """Its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                with kfp.lock:
                    found = kfp.answer(self.command, self.path, body)
            except Stopped:
                self.close_connection = True
                return
            status = 200 if found is not None else 404
            data = json.dumps(
                found if found is not None else {"code": 5, "message": "gone not found"}
            ).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
