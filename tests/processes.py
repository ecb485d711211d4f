"""Processes as /proc shows them, what a killed one has left behind, and machines that lack something."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import resource
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
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
    """The ports on which a process listens."""
    return [one.port for one in listeners([pid], "tcp")]


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
    with contextlib.suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return [pid]


def listeners(pids: Iterable[int], kind: str = "inet") -> set[Listener]:
    """Where processes wait for anybody: listening TCP sockets, and UDP sockets without a peer."""
    found = set()
    for pid in pids:
        with contextlib.suppress(psutil.Error):  # it has ended
            process = psutil.Process(pid)
            line = " ".join(process.cmdline())
            found |= {
                Listener(one.laddr.ip, one.laddr.port, line)
                for one in process.net_connections(kind)
                if one.status == psutil.CONN_LISTEN or (one.type == socket.SOCK_DGRAM and not one.raddr)
            }
    return found
