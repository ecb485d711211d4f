"""Processes as /proc shows them, what a killed one has left behind, and machines that lack something."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@contextlib.contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """What a full disk does, for this process: a write beyond `size` bytes fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def one_cpu() -> Iterator[None]:
    """This process may use one CPU, and so may what it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def fields_of(pid: int | str) -> list[str]:
    """State (Z: it has ended, unwaited for), parent, process group and so on; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_alive(pid: int | str) -> bool:
    """Whether a process has not ended; one that nobody has waited for yet has."""
    return fields_of(pid)[:1] not in ([], ["Z"])


def members(group: int) -> dict[int, int]:
    """The living processes of a process group, and the parent of each."""
    found = {path.name: fields_of(path.name) for path in Path("/proc").glob("[0-9]*")}
    return {int(p): int(f[1]) for p, f in found.items() if f and int(f[2]) == group and f[0] != "Z"}


def survivors(group: int, seconds: float = 60) -> dict[int, int]:
    """The members of a group that still live after a moment; returns as soon as there is none."""
    deadline = time.monotonic() + seconds
    while (found := members(group)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def listening(pid: int) -> list[int]:
    """The ports on which a process listens on the loopback."""
    try:
        own = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    except OSError:
        return []
    return [int(r[1].rpartition(":")[2], 16) for r in rows if r[3] == "0A" and f"socket:[{r[9]}]" in own]


@dataclass(frozen=True)
class Listener:
    """A socket at which a process waits for others."""

    address: str
    port: int
    line: str
    """The process's command line."""

    @property
    def is_local(self) -> bool:
        """Whether nobody beyond this machine reaches it."""
        address = ipaddress.ip_address(self.address)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    parents = {int(p.name): int((fields_of(p.name) or ["", "0"])[1]) for p in Path("/proc").glob("[0-9]*")}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def listeners(pids: Iterable[int]) -> set[Listener]:
    """Where processes wait for anybody: listening TCP sockets, and UDP sockets without a peer."""
    waiting = {row[9]: _address(row[1]) for name in _TABLES for row in _rows(name) if row[3] == _TABLES[name]}
    found = set()
    for pid in pids:
        try:
            own = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        inodes = [name.removeprefix("socket:[").removesuffix("]") for name in own]
        found |= {Listener(*waiting[inode], line) for inode in inodes if inode in waiting}
    return found


_TABLES = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
"""Of /proc/net, and the state of a socket that waits for anybody (proc_net_tcp(5))."""


def _rows(table: str) -> list[list[str]]:
    try:
        return [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    except OSError:  # a kernel without IPv6
        return []


def _address(text: str) -> tuple[str, int]:
    """`0100007F:1F90`: words of four bytes, each in this machine's order."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8)]
    data = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return str(ipaddress.ip_address(data)), int(port, 16)
