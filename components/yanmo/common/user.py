"""Who runs this process, and where: what a record of something that a person decided says."""

from __future__ import annotations

import getpass
import socket


def user() -> str:
    """`name@machine`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a pod's user id that has no name
        name = "unknown"
    return f"{name}@{socket.gethostname()}"
