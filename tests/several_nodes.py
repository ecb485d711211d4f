"""Several supervisors on this machine train one model: real processes, each with a scratch of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from processes import is_alive
from training_runs import losses_of as losses
from training_runs import model_of

from yanmo.options.fields import flag
from yanmo.store.output import Output

ROWS, STEPS = 8, 60
OPTIONS = {"batch_rows": ROWS, "steps": STEPS, "checkpoint_steps": 2}
SKIPPED, TROUBLE = 3, (6, 7, 8)
"""Steps that `site_of` poisons: one on the last rank alone, which all skip; three, which make all rewind."""
TOLERANCE = 1e-4
"""Of a loss, between two ranks and four: they add the gradients' fp32 numbers in another order. One addition
is wrong by 6e-8 of the sum at most, and the steps of a training let that grow."""


def a_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Nodes:
    """A command on each of some nodes."""

    def __init__(
        self,
        store: Path | str,
        options: Mapping[str, object],
        nnodes: int,
        scratch: Path,
        site: str = "",
    ) -> None:
        """Args:
        site: folder of a `sitecustomize` for all their processes (faults.install).
        """
        self.store, self.options, self.nnodes, self.scratch = store, options, nnodes, scratch
        self.port, self.site = a_port(), site
        self.by_launcher = False
        """Whether they are told where they stand by a launcher's variables alone, and by no flag."""
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *numbers: int, **changes: object) -> None:
        self.scratch.mkdir(exist_ok=True)
        for number in numbers or range(self.nnodes):
            values = {"metrics_port": -1, "scratch": self.scratch / str(number), **self.options, **changes}
            env = (
                {**os.environ, **self._pets(number, values.pop("ranks", 2))}
                if self.by_launcher
                else os.environ
            )
            if not self.by_launcher:
                values |= {"nnodes": self.nnodes, "node_rank": number, "rendezvous": f"127.0.0.1:{self.port}"}
            if self.site:
                env = {**env, "PYTHONPATH": f"{self.site}:{os.environ.get('PYTHONPATH', '')}"}
            flags = [f"{flag(name)}={value}" for name, value in values.items()]
            with self._log(number).open("wb") as log:
                self.running[number] = subprocess.Popen(
                    [sys.executable, "-m", "yanmo.train", f"--store={self.store}", *flags],
                    env=env,
                    stderr=log,
                    start_new_session=True,
                )

    def _pets(self, number: int, ranks: object) -> dict[str, str]:
        """What Kubeflow Trainer 2.3 sets (pkg/runtime/framework/plugins/torch/torch.go)."""
        values = {"NNODES": self.nnodes, "NODE_RANK": number, "NPROC_PER_NODE": ranks}
        values |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port}
        return {f"PET_{name}": str(value) for name, value in values.items()}

    def log(self, number: int) -> str:
        return self._log(number).read_text(encoding="utf-8")

    def _log(self, number: int) -> Path:
        return self.scratch / f"{number}.log"

    def says(self, number: int, words: str, seconds: float = 300) -> bool:
        """Whether a node's log comes to hold these words."""
        end = time.monotonic() + seconds
        while words not in self.log(number) and time.monotonic() < end:
            time.sleep(0.05)
        return words in self.log(number)

    def ends(self) -> dict[int, tuple[int, str]]:
        """Exit code and log of each node."""
        return {number: (one.wait(timeout=600), self.log(number)) for number, one in self.running.items()}

    def kill(self) -> None:
        for one in self.running.values():
            if one.poll() is None:
                one.kill()
                one.wait()


def lines_of(path: Path) -> list[dict]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:  # not made yet, or gone with the training's folder
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def workers_of(store: Path, seconds: float = 60) -> list[str]:
    """The ranks that train in a store and still live after a moment (Linux)."""
    end = time.monotonic() + seconds
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "yanmo.train" in text and str(store) in text and is_alive(path.parent.name):
                found.append(text)
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def wait_for_step(store: Path, step: int, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for folder, _, _ in os.walk(store):  # rglob fails where a checkpoint is removed meanwhile
            path = Path(folder, "metrics.jsonl")
            is_at_work = path.parts[-4:-2] == ("runs", "train")
            if is_at_work and any(line["step"] >= step for line in lines_of(path)):
                return
        time.sleep(0.05)
    raise AssertionError(f"step {step} never came")


@dataclass(frozen=True)
class Trained:
    """What a training on some nodes made."""

    model: Output
    losses: list[float]
    events: list[dict]
    samples: list[tuple[list[int], list[str]]]
    """Of each step: numbers of its samples in the order of the ranks, and its documents."""


def samples_in(record: Path, world: int) -> list[tuple[list[int], list[str]]]:
    """What `faults.record_rows` of each rank says, step by step."""
    found = []
    of_ranks = [_steps_of(lines_of(Path(f"{record}.{rank}")), ROWS // world) for rank in range(world)]
    for step in zip_longest(*of_ranks, fillvalue=([], [])):
        numbers = [number for rank in step for number in rank[0]]
        found.append((numbers, sorted({name for rank in step for name in rank[1]})))
    return found


def _steps_of(lines: list, rows: int) -> list[tuple[list[int], list[str]]]:
    steps: list[tuple[list[int], list[str]]] = []
    for first, count, documents in lines:
        if not steps or len(steps[-1][0]) == rows:
            steps.append(([], []))
        steps[-1][0].extend(range(first, first + count))
        steps[-1][1].extend(documents)
    return steps


def site_of(faults: Any, folder: Path, store: Path, tiny: Mapping[str, Any]) -> str:
    """A `sitecustomize` that poisons samples, and records which each rank trains on in `folder`/rows."""
    first = {step: (step - 1) * ROWS for step in (SKIPPED, *TROUBLE)}
    wanted = [first[SKIPPED] + ROWS - 1, *(first[step] + i for step in TROUBLE for i in range(ROWS))]
    bad = faults.rows_of(faults.samples_of(store, {**tiny, **OPTIONS}), wanted)
    folder.mkdir()
    return faults.install(
        folder / "site", f"faults.poison({bad}); faults.record_rows({str(folder / 'rows')!r})"
    )


def trained(folder: Path, where: Path, world: int) -> Trained:
    model = model_of(where)
    events = [line for line in lines_of(model.path("metrics.jsonl")) if "event" in line]
    return Trained(model, losses(model), events, samples_in(folder / "rows", world))
