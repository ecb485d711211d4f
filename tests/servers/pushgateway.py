"""A real Prometheus Pushgateway on a free port of the loopback."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request

from prometheus_client.parser import text_string_to_metric_families

from servers.program import OPEN, started
from servers.prometheus import free_port

PROGRAMS = ("prometheus-pushgateway", "pushgateway")
"""Debian's name, and its own."""
USER, PASSWORD = "yanmo", "ink & brush"
_HASH = "$2b$05$abcdefghijklmnopqrstuuUJqxlM6NYsmKDE8/j7udYk7ecki3CR2"
"""bcrypt of the password, as its file of users wants it."""


def absent() -> str:
    """Why there can be none here; "" where there can."""
    return "" if any(map(shutil.which, PROGRAMS)) else "needs pushgateway"


class Pushgateway:
    """Where a running one is."""

    def __init__(self, port: int, password: bool) -> None:
        self.address = f"http://127.0.0.1:{port}"
        word = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self._headers = {"Authorization": f"Basic {word}"} if password else {}

    def text(self) -> str:
        """What it shows to Prometheus."""
        with OPEN(Request(f"{self.address}/metrics", headers=self._headers), timeout=30) as answer:
            return str(answer.read().decode())

    def held(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Name and labels -> value, of Yanmo's."""
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
            if sample.name.startswith("yanmo_")
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The one value of that name with these labels among others; None where there is none."""
        wanted = set(labels.items())
        found = [value for (each, has), value in self.held().items() if each == name and wanted <= has]
        assert len(found) < 2, found
        return found[0] if found else None


@contextmanager
def pushgateway(folder: Path, *, password: bool = False) -> Iterator[Pushgateway]:
    """One that runs while the context lasts.

    Args:
        password: whether it lets USER alone in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, program = free_port(), next(name for name in PROGRAMS if shutil.which(name))
    flags = [f"--web.listen-address=127.0.0.1:{port}", "--persistence.file="]  # Debian's keeps one for all
    if password:
        (folder / "web.yml").write_text(f"basic_auth_users: {{{USER}: '{_HASH}'}}\n", encoding="utf-8")
        flags.append("--web.config.file=web.yml")
    with started([program, *flags], folder, f"http://127.0.0.1:{port}/-/ready"):
        yield Pushgateway(port, password)
