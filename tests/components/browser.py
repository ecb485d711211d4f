"""A real Chromium over DevTools' pipe: no driver, no package, no port.

https://chromedevtools.github.io/devtools-protocol/ ; messages are JSON, each ended by a NUL, on
descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS = 90.0
_BECOME = (
    "import fcntl, os, sys; r, w = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]); "
    "os.dup2(r, 3); os.dup2(w, 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
"""Puts our pipes where the browser looks for them."""


def program() -> str | None:
    """The browser of this machine, if it has one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One browser with one page."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process, self._write, self._read = process, write, read
        self._number, self._buffer = 0, b""
        self.events: list[dict[str, Any]] = []
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _SECONDS
        while (found := self._next(deadline)).get("id") != self._number:
            self.events.append(found)
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        return dict(found["result"])

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError(f"the browser ended with exit code {self._process.wait()}")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def open(
        self,
        page: Path | str,
        *,
        width: int = 1000,
        height: int = 800,
        language: str = "en-US",
        dark: bool = False,
    ) -> None:
        """Show a file or an address, as a person of this window, language and taste would see it."""
        agent = self.call("Runtime.evaluate", expression="navigator.userAgent")["result"]["value"]
        self.call("Network.setUserAgentOverride", userAgent=agent, acceptLanguage=language)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._load("about:blank")  # an address that differs behind its # alone loads nothing
        self._load(page if isinstance(page, str) else page.absolute().as_uri())

    def _load(self, address: str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + _SECONDS
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next(deadline))

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened."""
        return [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What the console would show: errors, refused scripts, dialogs."""
        wanted = ("Log.entryAdded", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")
        return [json.dumps(e["params"])[:300] for e in self.events if e.get("method") in wanted]

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(
            self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        )


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in `folder`, ended with the block."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "about:blank"]
    command = [str(program()), f"--user-data-dir={folder}", *flags]
    process = subprocess.Popen(
        [sys.executable, "-c", _BECOME, str(to_read), str(from_write), *command],
        pass_fds=(to_read, from_write),
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(process, to_write, from_read)
    finally:
        process.kill()
        process.wait()
        for descriptor in (to_write, from_read):
            with suppress(OSError):
                os.close(descriptor)
