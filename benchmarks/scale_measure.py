"""Measures what benchmarks/scale.py predicts for 1, 2 and 4 ranks: `python benchmarks/scale.py --measure`.

Groups of 1, 2 and 4 ranks (scale_rank.py) stay alive together and take turns, in another order each time, so
that what else runs on the machine meets all of them; what counts is the median of the fastest third. A group
trains with the stage's own engine, DeepSpeed over gloo on loopback, the same global batch in each group. What
is fitted is named in scale_here.py; everything else is held out.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scale_cells import CELLS, COUNTED, SIZES

from yanmo.common.made_by import processor
from yanmo.train.supervision.ranks import LOOPBACK_INTERFACE, environments, meeting_file

RANK = Path(__file__).parent / "scale_rank.py"
GROUPS = (1, 2, 4)


class Group:
    """Processes of one training."""

    def __init__(self, ranks: int, threads: int = 1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="yanmo-group-")
        meeting, kept = meeting_file(Path(self._folder.name), ranks)
        around = {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": LOOPBACK_INTERFACE}
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(RANK)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**around, **meeting, **variables},
                pass_fds=kept,
            )
            for variables in environments(ranks, None)
        ]
        for file in kept:
            os.close(file)

    def tell(self, **task: Any) -> None:
        """Have all ranks begin."""
        for process in self._processes:
            assert process.stdin
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()

    def answers(self) -> list[dict[str, Any]]:
        """What each rank answers, when the last one has."""
        found = []
        for process in self._processes:
            assert process.stdout
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"a rank ended with {process.wait()}; run it again with --measure alone")
            found.append(json.loads(line))
        return found

    def ask(self, **task: Any) -> list[dict[str, Any]]:
        """Have all ranks do it, and wait."""
        self.tell(**task)
        return self.answers()

    def end(self) -> None:
        """By the end of their input."""
        for process in self._processes:
            assert process.stdin
            process.stdin.close()
        for process in self._processes:
            process.wait()


def quick(seconds: Iterable[float]) -> float:
    """The median of the fastest third: of a machine on which other work comes and goes."""
    found = sorted(seconds)
    return statistics.median(found[: max(1, len(found) // 3)])


def measure(repeats: int, steps: int, commit: str) -> dict[str, Any]:
    """All figures, with the machine and its load."""
    began, load = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), [os.getloadavg()[0]]
    groups = {ranks: Group(ranks) for ranks in GROUPS}
    beside = Group(1)
    try:
        cells = _cells(groups, repeats, steps, load)
        found = {
            "cells": cells,
            "crowding": _crowding(groups[1], beside, repeats, steps),
            "sends": _sends(groups, repeats),
            "exchange": {
                str(n): min(g.ask(do="exchange", times=50)[0]["seconds"] for _ in range(3))
                for n, g in groups.items()
                if n > 1
            },
        }
    finally:
        for group in [*groups.values(), beside]:
            group.end()
    found["counted"] = _counted()
    load.append(os.getloadavg()[0])
    about = {
        "begun": began,
        "commit": commit,
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": [round(min(load), 1), round(max(load), 1)],
        "repeats": repeats,
        "steps": steps,
    }
    return {"about": about, **found}


def _cells(groups: dict[int, Group], repeats: int, steps: int, load: list[float]) -> dict[str, Any]:
    """Cell -> ranks -> medians and the range of what the slowest rank took."""
    turns = [(name, ranks) for name in CELLS for ranks in groups]
    for name, ranks in turns:  # engines, states, caches
        groups[ranks].ask(do="train", cell=CELLS[name], steps=1)
    found: dict[tuple[str, int], list[dict[str, float]]] = {turn: [] for turn in turns}
    order = random.Random(0)
    for number in range(repeats):
        order.shuffle(turns)
        for name, ranks in turns:
            answers = groups[ranks].ask(do="train", cell=CELLS[name], steps=steps)
            found[name, ranks].append({key: max(a[key] for a in answers) for key in answers[0]})
        load.append(os.getloadavg()[0])
        print(f"round {number + 1} of {repeats}, load {load[-1]:.1f}", file=sys.stderr, flush=True)
    return {
        name: {
            str(ranks): {
                "compute": quick(x["compute"] for x in found[name, ranks]),
                "seconds": quick(x["seconds"] for x in found[name, ranks]),
                "median": statistics.median(x["seconds"] for x in found[name, ranks]),
                "range": [f(x["seconds"] for x in found[name, ranks]) for f in (min, max)],
            }
            for ranks in groups
        }
        for name in CELLS
    }


def _counted() -> dict[str, Any]:
    """What one step sends, by stage."""
    found = {}
    for name, cell in COUNTED.items():
        group = Group(2)
        try:
            found[name] = group.ask(do="count", cell=cell)[0]
        finally:
            group.end()
    return found


def _crowding(one: Group, other: Group, repeats: int, steps: int) -> dict[str, float]:
    """Times longer that a training of one rank computes while a second one does, on the other core."""
    found: dict[str, float] = {}
    for name in ("narrow, 64", "wide, 64"):
        alone, together = [], []
        task = {"do": "train", "cell": CELLS[name], "steps": steps}
        other.ask(**task)
        for _ in range(repeats):
            alone.append(one.ask(**task)[0]["compute"])
            other.tell(**{**task, "steps": 2 * steps})
            together.append(one.ask(**task)[0]["compute"])
            other.answers()
        found[name] = quick(together) / quick(alone)
    return found


def _sends(groups: dict[int, Group], repeats: int) -> list[dict[str, Any]]:
    """Seconds of collectives by kind, ranks and bytes."""
    found = []
    for kind in ("all-reduce", "all-gather"):
        for ranks, group in groups.items():
            for elements in SIZES if ranks > 1 else ():
                times = 5 if elements >= 2**20 else 21
                asked = [group.ask(do="send", kind=kind, elements=elements, times=times) for _ in range(3)]
                seconds = min(max(a["seconds"] for a in answers) for answers in asked)
                found.append({"kind": kind, "ranks": ranks, "bytes": 4 * elements, "seconds": seconds})
    return found
