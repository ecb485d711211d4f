"""A training on nodes of `Network`: started, watched from outside, disturbed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from several_nodes import lines_of

from nodes.network import Network, run
from yanmo.options.fields import flag

_POLL_SECONDS, _CLOSE_SECONDS, _LOOK_SECONDS = 0.05, 0.002, 0.2
"""Between two looks; where a moment has to be met; and where a pause is measured."""
INTERVAL = 4
"""Steps between checkpoints."""
OPTIONS: Mapping[str, Any] = {
    **{"context": 128, "layers": 2, "width": 128, "heads": 2, "kv_heads": 1, "head_width": 64},
    **{"feed_forward": 192, "batch_rows": 16, "steps": 40, "warmup_steps": 2, "log_every": 1},
    **{"threads": 1, "device": "cpu", "checkpoint_seconds": 0, "checkpoint_steps": INTERVAL},
    **{"valid_characters": 300, "metrics_port": -1},
}
_RESUMED = re.compile(r"resuming at step (\d+) of")


class Training:
    """The same command on each node, as often as it has to be given."""

    def __init__(self, network: Network, store: Path, layout: tuple[int, int], logs: Path) -> None:
        self.network, self.store, self.layout, self.logs = network, store, layout, logs
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.clock: dict[int, dict[str, str]] = {}
        """Environment of nodes whose clock is wrong."""
        self.starts = 0

    def start(self) -> None:
        nodes, ranks = self.layout
        self.starts += 1
        for node in range(nodes):
            own = {
                "nnodes": nodes,
                "node_rank": node,
                "ranks": ranks,
                "scratch": self.logs / f"scratch-{node}",
            }
            own |= {"rendezvous": f"{self.network.address(0)}:29500"}
            flags = [f"{flag(name)}={value}" for name, value in {**OPTIONS, **own}.items()]
            command = [*self.network.within(node), sys.executable, "-m", "yanmo.train"]
            with self.log(node).open("wb") as log:
                self.running[node] = subprocess.Popen(
                    [*command, f"--store={self.store}", *flags],
                    env={**os.environ, **self.clock.get(node, {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def log(self, node: int, start: int = 0) -> Path:
        return self.logs / f"node-{node}.{start or self.starts}.log"

    @property
    def step(self) -> int:
        """The last step whose line is written."""
        return max(
            (line["step"] for path in self._works("metrics.jsonl") for line in lines_of(path)), default=0
        )

    @property
    def saves(self) -> bool:
        """Whether a checkpoint is being written."""
        return any(True for _ in self._works("checkpoints/.tmp-step-*"))

    def _works(self, pattern: str) -> Iterator[Path]:
        return self.store.glob(f"runs/train/*/{pattern}")

    @property
    def is_over(self) -> bool:
        return all(one.poll() is not None for one in self.running.values())

    def wait(self, what: Callable[[], bool], seconds: float, *, closely: bool = False) -> bool:
        """Whether it came to be so before the training ended."""
        end = time.monotonic() + seconds
        while not (found := what()) and not self.is_over and time.monotonic() < end:
            time.sleep(_CLOSE_SECONDS if closely else _POLL_SECONDS)
        return found

    def codes(self, seconds: float) -> dict[int, int | None]:
        """Wait for the end: exit code of each node, None for one that runs on after so long."""
        self.wait(lambda: False, seconds)
        return {node: one.poll() for node, one in self.running.items()}

    @contextmanager
    def watched(self) -> Iterator[Callable[[], float]]:
        """Gives, afterwards, the longest time inside without a step while any node ran, seconds."""
        longest, ended = 0.0, threading.Event()

        def watch() -> None:
            nonlocal longest
            moved, step = time.monotonic(), self.step
            while not ended.wait(_LOOK_SECONDS):
                if self.is_over or self.step != step:
                    moved, step = time.monotonic(), self.step
                longest = max(longest, time.monotonic() - moved)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield lambda: longest
        finally:
            ended.set()
            watcher.join()

    def signal(self, node: int, number: int) -> None:
        for pid in self.network.processes(node):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def kill(self, node: int) -> None:
        """All processes of a node at once, as a pod is that is deleted by force."""
        while self.network.processes(node):
            self.signal(node, signal.SIGKILL)
            time.sleep(0.05)
        self.running[node].wait()

    def end(self) -> None:
        for node in self.running:
            while self.network.processes(node):
                self.signal(node, signal.SIGKILL)
                time.sleep(0.05)
            self.running[node].wait()

    def workers(self, node: int) -> list[int]:
        found = []
        for pid in self.network.processes(node):
            try:
                text = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"yanmo.train.worker" in text:
                found.append(pid)
        return found

    def resumed_at(self) -> int:
        """From which step the last start went on; 0 for its beginning."""
        found = _RESUMED.search(self.log(0).read_text(encoding="utf-8", errors="replace"))
        return int(found[1]) if found else 0

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """While inside, the disk of the store, a small one, is full."""
        filler = self.store.parent / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(b"\0" * 65536)
                    file.flush()
            except OSError:
                pass
        try:
            yield
        finally:
            filler.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """While inside, the folder is a disk of its own, in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    try:
        yield
    finally:
        run("umount", "-l", str(folder))
