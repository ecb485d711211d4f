"""Processes whose machine has a name that does not resolve, as in a container without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys

NAMELESS = ["unshare", "--uts", "sh", "-c", 'hostname no-such-name.invalid && exec "$@"', "sh"]


def cannot_be_nameless() -> str:
    """Why no process can be started here whose host name does not resolve; empty where one can."""
    if not (shutil.which("unshare") and shutil.which("hostname")):
        return "needs unshare and hostname (util-linux)"
    asks = "import socket; socket.getaddrinfo(socket.gethostname(), None)"
    done = subprocess.run([*NAMELESS, sys.executable, "-c", asks], capture_output=True, text=True)
    if "gaierror" in done.stderr:
        return ""
    return f"may not give a process another host name: {done.stderr.strip()[-100:] or 'it resolves'}"
