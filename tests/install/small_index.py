"""A project as small as can be, with the real Makefile and installer, and an index that has its packages."""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
import shutil
import threading
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

ROOT = Path(__file__).parents[2]
BACKEND = """
import sys; sys.path.insert(0, {tests!r})
from small_index import wheel
def get_requires_for_build_editable(settings=None): return []
def build_editable(folder, settings=None, metadata=None):
    name = "yanmo-0.1.0-py3-none-any.whl"
    open(folder + "/" + name, "wb").write(wheel("yanmo", "0.1.0", {{"yanmo.pth": {root!r}}}))
    return name
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "yanmo"
version = "0.1.0"
"""


def wheel(name: str, version: str, files: Mapping[str, str]) -> bytes:
    """A wheel of pure Python."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}")
    record = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            entry = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)
    return packed.getvalue()


class Index:
    """A server of two indexes: /pypi and /cpu."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {"pypi": {}, "cpu": {}}
        self.asked: list[str] = []
        self.held: dict[str, threading.Event] = {}
        """Files that are begun, but not sent to their end before the event."""
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def log_message(self, *words: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        for event in self.held.values():
            event.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        kind, _, rest = unquote(request.path).strip("/").partition("/")
        found = self.files.get(kind)
        if found is None:
            request.send_error(404)
        elif rest.endswith(".whl"):
            name = rest.rpartition("/")[2]
            body = found[name]
            request.send_response(200)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body[:10])
            request.wfile.flush()
            if name in self.held:
                self.held[name].wait()
            request.wfile.write(body[10:])
        else:
            project = rest.rpartition("/")[2]
            names = [name for name in found if name.startswith(f"{project.replace('-', '_')}-")]
            if project and not names:
                return request.send_error(404)
            links = (f'<a href="/{kind}/f/{quote(n)}#{sha256(found[n], "=")}">{n}</a>' for n in names)
            body = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
            request.send_response(200)
            request.send_header("Content-Type", "text/html")
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)


def sha256(data: bytes, sign: str = ":") -> str:
    return f"sha256{sign}{hashlib.sha256(data).hexdigest()}"


def small_project(folder: Path, index: Index, real_uv: Path) -> None:
    """Write the project, and its packages into the index."""
    shutil.copytree(ROOT / "install", folder / "install", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    backend = BACKEND.format(tests=str(Path(__file__).parent), root=str(folder))
    (folder / "backend.py").write_text(backend, encoding="utf-8")
    start = f'#!/bin/sh\nexec {shlex.quote(str(real_uv))} "$@"\n'
    packages = {
        "base": [("first", "1.0", {"first.py": "x = 1"}), ("second", "2.0", {"second.py": "x = 2"})],
        "cpu": [("torch", "2.13.0+cpu", {"torch.py": "cuda = None"})],
        "cuda": [("torch", "2.13.0", {"torch.py": "cuda = 13"}), ("nvidia_x", "1", {"nvidia_x.py": ""})],
        "build": [("setuptools", "81.0.0", {"setuptools.py": ""})],
        "uv": [("uv", "1.0", {"uv-1.0.data/scripts/uv": start})],
    }
    (folder / "constraints").mkdir()
    for lock, pins in packages.items():
        lines = []
        for name, version, files in pins:
            packed = wheel(name, version, files)
            where = index.files["cpu" if lock == "cpu" else "pypi"]
            where[f"{name}-{version}-py3-none-any.whl"] = packed
            lines += [f"{name.replace('_', '-')}=={version} \\", f"    --hash={sha256(packed)}"]
        (folder / "constraints" / f"{lock}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
