"""Records what a real server of a cluster answers, so that tests are answered the same: a small HTTP proxy.

    python tests/cluster_answers/record.py http://KFP:8888 green.json 8001
    yanmo submit --host http://127.0.0.1:8001 ...
    kubectl proxy --port 8002 &
    python tests/cluster_answers/record.py http://127.0.0.1:8002 pods.json 8003

It ends with Ctrl-C or SIGTERM and then writes the file: each request with its answers in their order.
Equal answers that follow each other are written once, with their number.
"""

from __future__ import annotations

import http.server
import json
import re
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLACES = re.compile(r"/(?:tmp/kfp|root/go/pkg/mod|usr/local/go)/")
"""Where the machine's KFP was built: not part of its answer."""


def main() -> None:
    """Serve until a signal comes, then write what was seen."""
    server, name, port = sys.argv[1].rstrip("/"), sys.argv[2], int(sys.argv[3])
    seen: list[dict[str, Any]] = []

    class Recorder(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            sent = {k: v for k, v in self.headers.items() if k in ("Content-Type", "Accept")}
            request = urllib.request.Request(server + self.path, body or None, sent, method=self.command)
            try:
                answer = urllib.request.urlopen(request, timeout=60)
            except urllib.error.HTTPError as error:
                answer = error
            data, kind = answer.read(), answer.headers.get("Content-Type", "")
            record = {
                "request": f"{self.command} {self.path}",
                "status": answer.status,
                "type": kind,
                "body": _shown(self.path, data.decode("utf-8", "replace")),
            }
            before = [one for one in seen if one["request"] == record["request"]]
            if before and {**before[-1], "times": 1} == {**record, "times": 1}:
                before[-1]["times"] += 1
            else:
                seen.append({**record, "times": 1})
            self.send_response(answer.status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _answer

        def log_message(self, *said: object) -> None:
            """Nothing: the command that is recorded speaks."""

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        http.server.ThreadingHTTPServer(("127.0.0.1", port), Recorder).serve_forever()
    except KeyboardInterrupt:
        text = json.dumps(seen, ensure_ascii=False, indent=1)
        (HERE / name).write_text(text + "\n", encoding="utf-8")


def _shown(path: str, text: str) -> str:
    """An answer without what is secret in it, and without places of the machine."""
    if "/secrets/" in path and '"data"' in text:
        found = json.loads(text)
        text = json.dumps({**found, "data": dict.fromkeys(found.get("data", {}), "Li4u")})
    return PLACES.sub("/", text)


if __name__ == "__main__":
    main()
