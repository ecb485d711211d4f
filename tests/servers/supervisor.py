"""Keeps one Ceph running for as long as somebody is connected: `python -m servers.supervisor FOLDER`.

Several pytest workers share one server. Each holds a connection to a Unix socket of this process; the kernel
closes it when the worker ends, even by kill -9: counting connections needs no heartbeat, leaves no orphans.
"""

from __future__ import annotations

import fcntl
import json
import selectors
import shutil
import socket
import sys
import time
from pathlib import Path

from servers.ceph import Ceph

SOCKET, LOCK = "supervisor.sock", "supervisor.lock"
_FIRST_SECONDS, _LINGER_SECONDS = 60.0, 1.0


def supervise(folder: Path) -> None:
    """Run the server in `folder` until its last user has gone; the folder goes with it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held while we live: sweep() tells the living from the dead by it
        ceph = Ceph(folder)
        try:
            ceph.start()
            _serve(folder, ceph)
        except RuntimeError as error:
            print(json.dumps({"error": str(error)}), flush=True)
        finally:
            ceph.stop()
            shutil.rmtree(folder, ignore_errors=True)


def _serve(folder: Path, ceph: Ceph) -> None:
    address = {"endpoint": ceph.endpoint, "tls_endpoint": ceph.tls_endpoint, "ca_path": str(ceph.ca_path)}
    greeting = json.dumps({**address, "pids": ceph.pids}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
        listener.bind(str(folder / SOCKET))
        listener.listen(64)
        ready.register(listener, selectors.EVENT_READ)
        print(greeting.decode(), end="", flush=True)
        users, end = 0, time.monotonic() + _FIRST_SECONDS
        while users or time.monotonic() < end:
            for key, _ in ready.select(0.2):
                if key.fileobj is listener:
                    user, _ = listener.accept()
                    user.sendall(greeting)
                    ready.register(user, selectors.EVENT_READ)
                    users += 1
                    continue
                ready.unregister(key.fileobj)  # users never write: readable means gone
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
                users -= 1
                end = time.monotonic() + _LINGER_SECONDS


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
