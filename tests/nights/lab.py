"""What can be done to a lab whose daemons are processes of this machine: `lab up`, `lab down`, their ids.

A lab is a folder with a program `lab`, whose `up` starts only what does not run, and whose state folder
(YANMO_LAB) has run/<daemon>.pid.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from pathlib import Path

STATE = Path(os.environ.get("YANMO_LAB", Path.home() / ".cache/yanmo-lab"))
_SETTLED_SECONDS = 3.0
_CEPH = {"CEPH_CONF": str(STATE / "ceph/ceph.conf"), "PATH": "/usr/bin:/bin:/usr/sbin"}


class Lab:
    """One lab."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "lab"

    def up(self, until: str = "kfp") -> None:
        """Start what does not run, and wait for it.

        `up` writes the file of kube-proxy again, which ends when that changes: in a cluster its DaemonSet
        starts it again, here a second `up` does.
        """
        self._do("up", "--until", until)
        time.sleep(_SETTLED_SECONDS)
        if not self._is_alive("kube-proxy"):
            self._do("up", "--until", until)

    def down(self) -> None:
        """Stop everything; databases and buckets stay."""
        self._do("down")

    def stop(self, daemon: str) -> None:
        """End a daemon as its machine's shutdown would, and wait until it is gone."""
        pid = self._pid(daemon)
        os.kill(pid, signal.SIGTERM)
        for _ in range(300):
            if not self._is_alive(daemon):
                return
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)

    def _pid(self, daemon: str) -> int:
        return int((STATE / f"run/{daemon}.pid").read_text())

    def _is_alive(self, daemon: str) -> bool:
        try:
            stat = Path(f"/proc/{self._pid(daemon)}/stat").read_text()
        except FileNotFoundError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"

    def new_key(self, name: str) -> str:
        """Give the store's user one more access key; returns its secret key."""
        secret = secrets.token_hex(16)
        self._keys("create", name, "--secret-key", secret)
        return secret

    def remove_key(self, name: str) -> None:
        self._keys("rm", name)

    def _keys(self, what: str, name: str, *more: str) -> None:
        words = ["radosgw-admin", "key", what, "--uid=lab", "--key-type=s3", "--access-key", name, *more]
        done = subprocess.run(words, env=_CEPH, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words[:3])}: {done.stderr[-1000:]}")

    def _do(self, *words: str) -> None:
        done = subprocess.run([str(self._program), *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"lab {' '.join(words)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
