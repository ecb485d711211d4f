"""A server that answers as a cluster once did: tests/cluster_answers."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).resolve().parents[1] / "cluster_answers"
TINY = ANSWERS / "tiny.yaml"


def answers(name: str) -> list[dict[str, Any]]:
    """A recording."""
    found: list[dict[str, Any]] = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def one(request: str, status: int, body: Any, type: str = "application/json") -> dict[str, Any]:
    """An answer that was not recorded, such as a proxy's."""
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return {"request": request, "status": status, "type": type, "body": text}


class Replayed:
    """Answers each request as recorded: the first of its answers first, the last of them from then on."""

    def __init__(self, recorded: list[dict[str, Any]]) -> None:
        self.asked: list[str] = []
        self.bodies: list[str] = []
        self.authorizations: list[str] = []
        self._left: dict[str, list[dict[str, Any]]] = {}
        for answer in recorded:
            times = [answer] * answer.get("times", 1)
            self._left.setdefault(_plain(answer["request"]), []).extend(times)
        self._lock = threading.Lock()

    def answer_to(self, request: str, body: str, authorization: str = "") -> dict[str, Any]:
        with self._lock:
            self.asked.append(request)
            self.bodies.append(body)
            self.authorizations.append(authorization)
            found = self._left.get(_plain(request))
            if not found:
                return one(request, 404, {"code": 5, "message": "Not Found"})
            return found.pop(0) if len(found) > 1 else found[0]

    def sent(self, request: str) -> list[Any]:
        """The bodies of these requests, whatever their query."""
        pairs = zip(self.asked, self.bodies, strict=True)
        return [json.loads(body) for asked, body in pairs if asked.partition("?")[0] == request and body]


def _plain(request: str) -> str:
    """A request without what differs from one checkout to the next: the name and description of a version."""
    return re.sub(r"(name|description)=[^&]*|%22string_value%22%3A\+%22[^&]*", "", request)


@contextmanager
def serving(recorded: list[dict[str, Any]]) -> Iterator[tuple[str, Replayed]]:
    """The address of a server that answers so."""
    replayed = Replayed(recorded)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode("utf-8", "replace")
            sent = self.headers.get("Authorization", "")
            answer = replayed.answer_to(f"{self.command} {self.path}", body, sent)
            data = answer["body"].encode()
            self.send_response(answer["status"])
            self.send_header("Content-Type", answer["type"])
            self.send_header("Content-Length", str(len(data)))
            for name, value in answer.get("headers", {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _answer

        def log_message(self, *said: object) -> None:
            """Nothing: a test's output is its own."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", replayed
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(folder: Path, address: str) -> str:
    """A kubeconfig that names the server at `address`."""
    path = folder / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        f'clusters: [{{name: c, cluster: {{server: "{address}"}}}}]\n'
        "users: [{name: u, user: {}}]\n"
        "contexts: [{name: here, context: {cluster: c, user: u, namespace: kubeflow}}]\n",
        encoding="utf-8",
    )
    return str(path)
