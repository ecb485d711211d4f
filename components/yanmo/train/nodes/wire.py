"""Messages between the supervisors of several nodes: JSON, one a line, over one TCP connection each.

Each side sends a beat every two seconds, whatever else it does; a node without one for too long counts as
lost. A connection that misses some is asked after over another one (still_there.py). Where a process ends,
the system closes its connections, and the other side knows at once.
Nothing that arrives is run or unpickled: a message is a JSON object of at most `_MOST_BYTES`, and what it
holds is checked where it is used.

Alternative not taken: torch's TCPStore, on which torchrun rests. The supervisor imports no torch, a store has
no order and does not say who is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import queue
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

from yanmo.common.errors import WorkerLost
from yanmo.train.health.watchdog import Silence

BEAT_SECONDS = 2.0
_QUIET_BEATS = 3
_SEND_SECONDS = 10.0
_MOST_BYTES = 1 << 20
_SIOCGIFADDR = 0x8915
Message = dict[str, Any]


class NodeLost(WorkerLost):
    """Another node is gone, or has given no sign of life: the same command goes on."""


class Wire:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.settimeout(_SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer = str(connection.getpeername()[0]).removeprefix("::ffff:")
        self.here = str(connection.getsockname()[0])
        """Address of this machine, as the other end reaches it."""
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._heard, self._silence = 0, Silence()
        self._heard_at = time.monotonic()
        self._sending, self._over = threading.Lock(), threading.Event()
        self.token = ""
        """By which node 0 knows whose connection this is when it is asked over another one."""
        self.is_unheard = False
        """Whether the other end says that it misses our beats."""
        self.is_closed = False
        """Whether the other end is gone; what it sent before may still be unread (`is_over`)."""
        threads = ((self._read, "node-messages"), (self._beat, "node-beats"))
        self._threads = [threading.Thread(target=t, daemon=True, name=name) for t, name in threads]
        for thread in self._threads:
            thread.start()

    def send(self, kind: str, **values: Any) -> None:
        """Send a message; where the other end is gone, nothing happens: `is_closed` says so."""
        data = json.dumps({"kind": kind, **values}).encode() + b"\n"
        with self._sending:
            try:
                self._socket.sendall(data)
            except OSError:
                # A part of it may have gone: nothing after it could be read, and the other end is to know.
                # What it has sent before is still read, and then the connection counts as closed.
                self._shut_down()

    def take(self) -> Message | None:
        """The next message; None if there is none now."""
        with contextlib.suppress(queue.Empty):
            return self._messages.get_nowait()
        return None

    @property
    def is_over(self) -> bool:
        """Whether the other end is gone, and all that it has sent was taken."""
        return self.is_closed and self._messages.empty()

    def silent(self) -> float:
        """Seconds without a sign of life; call it regularly, as pauses of this process do not count."""
        return self._silence.look(self._heard)

    @property
    def is_quiet(self) -> bool:
        """Whether beats are missing: it may be gone, and is not counted as lost yet."""
        return time.monotonic() - self._heard_at > _QUIET_BEATS * BEAT_SECONDS

    def lives(self) -> None:
        """Note a sign of life of the other end that came another way."""
        self._heard, self._heard_at = self._heard + 1, time.monotonic()

    def hang_up(self) -> None:
        """Count the other end as gone once all that it has sent is read."""
        self._shut_down()

    def close(self) -> None:
        """Close the connection; what was sent still arrives."""
        self._over.set()
        self._shut_down()
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS) and not self.is_closed:
            self.send("beat", quiet=self.is_quiet)

    def _read(self) -> None:
        rest = b""
        while not self._over.is_set():
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            *lines, rest = (rest + data).split(b"\n")
            if not data or len(rest) > _MOST_BYTES or not all(map(self._note, lines)):
                break
        self.is_closed = True
        self._shut_down()

    def _note(self, line: bytes) -> bool:
        """Take in a line; whether it was a message."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
            return False
        self.lives()
        if message["kind"] == "beat":
            self.is_unheard = bool(message.get("quiet"))
        else:
            self._messages.put(message)
        return True


def interface_of(address: str) -> str:
    """Name of this machine's network interface with an address; "" where the system does not say."""
    if address.removeprefix("::ffff:").startswith("127."):
        return "lo" if Path("/sys/class/net/lo").exists() else "lo0"
    address = address.removeprefix("::ffff:").partition("%")[0]
    for _, name in socket.if_nameindex():
        if address in (_ipv4_of(name), *_ipv6_of(name)):
            return name
    return ""


def _ipv4_of(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            found = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:  # it has none
            return ""
    return socket.inet_ntoa(found[20:24])


def _ipv6_of(name: str) -> list[str]:
    try:
        rows = [line.split() for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()]
    except OSError:
        return []
    return [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])) for row in rows if row[-1] == name]
