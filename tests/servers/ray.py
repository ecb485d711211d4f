"""A Ray cluster of several nodes on this machine, which listens on 127.0.0.1 and asks for its token."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from processes import fields_of

ROOT = Path(__file__).parents[2]
_START_SECONDS = 120


class RayCluster:
    """A head, which does no work, and nodes of one CPU each."""

    def __init__(self, folder: Path, nodes: int, components: Path = ROOT / "components") -> None:
        pytest.importorskip("ray", reason="ray is not installed")
        self._gcs, self._client = _free_ports()
        self.address = f"ray://127.0.0.1:{self._client}"
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(components),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": self.address,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log = (folder / "ray.log").open("ab")
        self._start(
            *("--head", f"--port={self._gcs}", f"--ray-client-server-port={self._client}", "--num-cpus=0"),
            *("--include-dashboard=false", f"--temp-dir={_short(folder)}", "--object-store-memory=100000000"),
        )
        self._wait_for(self._client)
        for _ in range(nodes):
            self.add_node()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._processes):
            self._kill(process)
        self._log.close()

    def add_node(self) -> int:
        """Start a node; return its number."""
        self._start(f"--address=127.0.0.1:{self._gcs}", "--num-cpus=1", "--object-store-memory=100000000")
        return len(self._processes) - 1

    def kill_node(self, number: int) -> None:
        """End all processes of a node at once."""
        self._kill(self._processes[number])

    def workers(self, number: int) -> list[int]:
        """Return the processes of a node that do tasks."""
        found = []
        for pid in _below(self._processes[number].pid):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                    found.append(pid)
        return found

    def wait_for_nodes(self, count: int) -> None:
        """Wait until so many CPUs are there."""
        code = f"""
import ray, time
ray.init(log_to_driver=False, logging_level=40)
while ray.cluster_resources().get("CPU", 0) < {count}:
    time.sleep(0.2)
"""
        subprocess.run(
            [sys.executable, "-c", code],
            env=self.environment,
            check=True,
            timeout=_START_SECONDS,
            stderr=self._log,
        )

    def _start(self, *flags: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        self._processes.append(
            subprocess.Popen(
                [ray, "start", "--block", "--node-ip-address=127.0.0.1", "--disable-usage-stats", *flags],
                env={n: v for n, v in self.environment.items() if n != "RAY_ADDRESS"},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        )

    def _wait_for(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.1)
        raise TimeoutError(f"no Ray head at port {port}: {self._log.name}")

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


def _short(folder: Path) -> Path:
    """Return a folder whose sockets have names that the system takes."""
    return Path("/tmp", f"yanmo-ray-{secrets.token_hex(4)}")


def _free_ports() -> Iterator[int]:
    """Two ports outside of the workers' own."""
    with socket.socket() as first, socket.socket() as second:
        found = []
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
        return iter(found)
