"""Each node in a network of its own, joined by a bridge: what happens to its link is real (Linux, root).

The whole command runs in namespaces of its own first, so that nothing of it is left on the machine, however
it ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_INSIDE = "YANMO_NODES_INSIDE"
_NET = "192.0.2"
"""For documentation (RFC 5737): nobody else has it."""


class NotHere(Exception):
    """What this machine lacks."""


def enter() -> None:
    """Go on in namespaces of this command's own; returns in them.

    Raises:
        NotHere: not Linux, not root, or without a program.
    """
    if os.environ.get(_INSIDE):
        run("ip", "link", "set", "lo", "up")
        return
    lacks = [name for name in ("unshare", "nsenter", "ip", "iptables", "mount") if shutil.which(name) is None]
    what = f"{', '.join(lacks)} (apt-get install iproute2 iptables util-linux)" if lacks else ""
    if sys.platform != "linux" or os.getuid() != 0:
        what = "Linux and root"
    if what:
        raise NotHere(f"needs {what}: each node gets a network namespace of its own")
    own = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    command = ["unshare", *own, "--", sys.executable, "-m", "nodes", *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})


def run(*command: str) -> None:
    """Run a command.

    Raises:
        NotHere: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotHere(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """So many nodes on one bridge."""

    def __init__(self, count: int) -> None:
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "link", "set", "bridge", "up")
        self._holders = [_holder() for _ in range(count)]
        for node, holder in enumerate(self._holders):
            ends = "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)
            run("ip", "link", "add", f"to{node}", *ends)
            run("ip", "link", "set", f"to{node}", "master", "bridge", "up")
            run(*self.within(node), "ip", "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                run(*self.within(node), "ip", "link", "set", link, "up")

    def address(self, node: int) -> str:
        return f"{_NET}.{10 + node}"

    def within(self, node: int) -> Sequence[str]:
        """How a command begins that runs on a node."""
        return ("nsenter", f"--target={self._holders[node].pid}", "--net")

    def processes(self, node: int) -> list[int]:
        """All processes of a node: those in its network."""
        holder = self._holders[node].pid
        own, found = os.stat(f"/proc/{holder}/ns/net").st_ino, []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.stat(path / "ns/net").st_ino == own and int(path.name) != holder:
                    found.append(int(path.name))
        return sorted(found)

    def cut(self, node: int) -> None:
        """Let nothing through to the node and from it."""
        self._drop(node)

    def slow(self, node: int, kilobytes: int) -> None:
        """Let at most so much through in a second, each way: what comes faster is dropped, and sent again."""
        self._drop(
            node, "-m", "hashlimit", "--hashlimit-above", f"{kilobytes}kb/s", "--hashlimit-name", "slow"
        )

    def heal(self, node: int) -> None:
        for chain in ("INPUT", "OUTPUT"):
            run(*self.within(node), "iptables", "-F", chain)

    def _drop(self, node: int, *which: str) -> None:
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            run(*self.within(node), "iptables", "-A", chain, way, "eth0", *which, "-j", "DROP")


def _holder() -> subprocess.Popen[bytes]:
    """A process that holds a network namespace for as long as this one lives: its input ends with it."""
    made = subprocess.Popen(["unshare", "--net", "--", "cat"], stdin=subprocess.PIPE)
    here, end = os.stat("/proc/self/ns/net").st_ino, time.monotonic() + 20
    while os.stat(f"/proc/{made.pid}/ns/net").st_ino == here:
        if time.monotonic() > end:
            raise NotHere("unshare --net made no namespace")
        time.sleep(0.01)
    return made
