"""A Ray cluster of several nodes on this machine, which asks for its token."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from processes import fields_of

ROOT = Path(__file__).parents[2]
_START_SECONDS = 120


class RayCluster:
    """A head, which does no work, and nodes of one CPU each."""

    def __init__(self, folder: Path, nodes: int, python_path: Sequence[Path] = (), **variables: str) -> None:
        """Args:
        folder: for its log, and the scratch of each node.
        python_path: where workers look for modules first.
        variables: what nodes and drivers have in their environment besides.
        """
        if importlib.util.find_spec("ray") is None:  # not imported here: it reads its token when it is
            pytest.skip("ray is not installed")
        self._folder = folder
        self._sockets = Path("/tmp", f"yanmo-ray-{secrets.token_hex(4)}")  # a socket's name must be short
        self._gcs, self._client = _free_ports()
        self.address = f"ray://127.0.0.1:{self._client}"
        self.attached = f"127.0.0.1:{self._gcs}"
        """For a driver that is a process of a node, as in a Ray Job."""
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, [*python_path, ROOT / "components"])),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_gcs_server_request_timeout_seconds": str(_START_SECONDS),  # a machine may be busy
            "RAY_ADDRESS": self.address,
            **variables,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(
                *(
                    "--head",
                    f"--port={self._gcs}",
                    f"--ray-client-server-port={self._client}",
                    "--num-cpus=0",
                ),
                *(
                    "--include-dashboard=false",
                    f"--temp-dir={self._sockets}",
                    "--object-store-memory=100000000",
                ),
            )
            for _ in range(nodes):
                self.add_node()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._processes):
            self._kill(process)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def add_node(self) -> int:
        """Start a node; return its number."""
        self._start(f"--address=127.0.0.1:{self._gcs}", "--num-cpus=1", "--object-store-memory=100000000")
        return len(self._processes) - 1

    def kill_node(self, number: int) -> None:
        """End all processes of a node at once."""
        self._kill(self._processes[number])

    def stop(self, number: int) -> None:
        """Have all processes of a node stand still."""
        for pid in _below(self._processes[number].pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def workers(self, number: int) -> list[int]:
        """Return the processes of a node that do tasks."""
        found = []
        for pid in _below(self._processes[number].pid):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                    found.append(pid)
        return found

    def _start(self, *flags: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        own = {n: v for n, v in self.environment.items() if n != "RAY_ADDRESS"}
        own["YANMO_SCRATCH"] = str(self._folder / f"scratch-{len(self._processes)}")
        log = self._folder / f"node-{len(self._processes)}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [ray, "start", "--block", "--node-ip-address=127.0.0.1", "--disable-usage-stats", *flags],
                env=own,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self._processes.append(process)
        deadline = time.monotonic() + _START_SECONDS
        while "Ray runtime started." not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a node of Ray did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        for pid in _below(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _below(pid: int) -> list[int]:
    """Return a process and all that it started."""
    parents = {int(path.name): fields_of(path.name) for path in Path("/proc").glob("[0-9]*")}
    found = [pid]
    for one in found:
        found += [each for each, fields in parents.items() if fields and int(fields[1]) == one]
    return found


def _free_ports() -> Iterator[int]:
    """Two ports outside of the workers' own."""
    with socket.socket() as first, socket.socket() as second:
        found = []
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
        return iter(found)
