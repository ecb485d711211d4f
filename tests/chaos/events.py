"""What the witness told: events of one run, and the commits among them."""

from __future__ import annotations

import os
import re
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_IDS = re.compile(r"[0-9a-f]{12,}|(?<=/)[0-9a-f]{2}(?=/)|(?<=[-_.])\d{4,}(?=[-_.]|$)|tmp\w{6,}")
_SCRATCH_OBJECT = re.compile(r"/objects/\*/\*$")


@dataclass(frozen=True)
class Event:
    """One write that a process was about to make."""

    seconds: float
    """Of the monotonic clock."""
    kind: str
    """open, os.link, os.rename, os.remove, GET, PUT ..."""
    name: str
    """What is written, without ids of attempts, processes and stores: equal between runs."""

    @property
    def writer(self) -> str:
        """Whose commit it is (`tokenizer`, `checkpoint`, `pointers` ...); empty for any other event."""
        return writer_of(self.kind, self.name)


def writer_of(kind: str, name: str) -> str:
    """Whose commit an event is: the event after which others can see what was made."""
    if kind not in ("os.link", "os.rename", "PUT"):
        return ""
    parts = name.strip("/").split("/")
    if parts[-1] == "MANIFEST.json" and "cas" in parts:
        return parts[parts.index("cas") + 1]
    if "pointers" in parts:
        last = parts[-1]
        return "history" if "history" in parts else "champion" if last == "champion.json" else "pointers"
    if parts[-1] == "LEASE.json":
        return "lease"
    if kind == "os.rename":
        return {"latest": "checkpoint", "export": "export"}.get(
            parts[-1], "scratch" if _SCRATCH_OBJECT.search(name) else ""
        )
    return ""


def normalized(name: str) -> str:
    """A path or URL without what differs from run to run."""
    return _IDS.sub("*", name)


class Listener:
    """Reads the FIFO of a run in a thread, and does something when chosen events come."""

    def __init__(self, path: Path, roots: tuple[str, ...]) -> None:
        """Args:
        roots: beginnings of names that differ between stores; they are cut off.
        """
        self.path, self._roots = path, roots
        self.events: list[Event] = []
        self._wanted: dict[tuple[str, str, int], Callable[[], None]] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Listener:
        self.path.unlink(missing_ok=True)
        os.mkfifo(self.path)
        self._handle = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)  # RDWR: it never ends between writers
        self._thread.start()
        return self

    @property
    def variables(self) -> dict[str, str]:
        """With these a process tells its events (witness/sitecustomize.py)."""
        return {"YANMO_WITNESS": str(self.path)}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._handle)
        self.path.unlink(missing_ok=True)

    def on(self, kind: str, name: str, occurrence: int, then: Callable[[], None]) -> None:
        """Call `then` when the `occurrence`-th (from 0) event of this kind and name comes."""
        self._wanted[kind, name, occurrence] = then

    def _read(self) -> None:
        rest = b""
        while True:
            if not select.select([self._handle], [], [], 0.05)[0]:
                if self._stop.is_set():
                    return
                continue
            data = os.read(self._handle, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._hear(line.decode(errors="replace"))

    def _hear(self, line: str) -> None:
        seconds, _, kind, name = line.split(" ", 3)
        for root in self._roots:
            _, found, after = name.partition(root)
            name = after if found else name
        event = Event(float(seconds), kind, normalized(name))
        self.events.append(event)
        place = (event.kind, event.name)
        occurrence = self._seen.get(place, 0)
        self._seen[place] = occurrence + 1
        then = self._wanted.pop((*place, occurrence), None)
        if then:
            then()
