"""What telemetry costs a training, by turning it off and on in one and the same process.

Two trainings side by side differ by more than what is sought, on a machine that others use too. So one
training runs, and every few seconds, at the end of a step, its supervisor is stopped (SIGSTOP) or goes on:
stopped it reads no figures and answers no scrape, and the ranks do not notice. While it runs it is scraped
each second. Compared is the CPU time of steps in neighbouring blocks, in random order, so that what changes
slowly (other work, clocks, the training itself) falls out.

The supervisor's own CPU time is counted by the kernel and needs no comparison; it is counted without a
scraper too, as pods are scraped every 15 s and not each second. What stays on in both is what a rank adds up
in a step, and its watchdog once a second; telemetry.py measures these by themselves.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from processes import listening

_OPEN = build_opener(ProxyHandler({})).open
_WARM_STEPS = 10
_DRAWS = 10_000


@dataclass
class Block:
    """Some seconds of a training with telemetry on, or off."""

    on: bool
    cpu: list[float] = field(default_factory=list)
    """CPU seconds of the rank, of each step that lies in the block as a whole."""
    supervisor: float = 0.0
    """CPU seconds of the supervisor."""
    seconds: float = 0.0


def _records(store: str) -> Iterator[Path]:
    return Path(store).glob("runs/train/*/metrics.jsonl")


class Training:
    """The demo's model in training, with one line of its record for each step."""

    def __init__(self, store: str, channel: str, batch_rows: int, scratch: str) -> None:
        flags = [f"--store={store}", f"--channel={channel}", "--pointer=none", "--steps=1000000"]
        flags += [f"--seed={int(time.time())}", f"--batch-rows={batch_rows}", f"--scratch={scratch}"]
        flags += ["--valid-every=0", "--valid-points=0", "--log-every=1", "--log-level=warning"]
        flags += ["--checkpoint-steps=0", "--checkpoint-seconds=0", "--metrics-port=0", "--warmup-steps=10"]
        began = time.time()
        self.process = subprocess.Popen([sys.executable, "-m", "yanmo.train", *flags])
        self.pid, self._read, self._last = self.process.pid, 0, 0.0
        while not (
            found := [p for p in Path(store).glob("runs/train/*/metrics.jsonl") if p.stat().st_mtime > began]
        ):
            assert self.process.poll() is None, "the training has ended"
            time.sleep(0.1)
        (self.path,) = found

    def steps(self) -> list[float]:
        """CPU seconds of each step that has ended since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        lines: list[dict[str, Any]] = [json.loads(line) for line in data.splitlines()]
        found = []
        for line in lines:
            if "cpu_seconds" in line:
                found.append(line["cpu_seconds"] - self._last)
                self._last = line["cpu_seconds"]
        return found

    def next_steps(self) -> list[float]:
        """The same, of at least one step."""
        while not (found := self.steps()):
            assert self.process.poll() is None, "the training has ended"
            time.sleep(0.01)
        return found

    def cpu_of_process(self) -> float:
        """CPU seconds of the supervisor, with all threads that it ever had, in steps of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def turn(self, on: bool) -> None:
        os.kill(self.pid, signal.SIGCONT if on else signal.SIGSTOP)

    def end(self) -> None:
        self.turn(True)
        self.process.terminate()
        self.process.wait()


def _scrape_each_second(pid: int, on: threading.Event, ended: threading.Event) -> None:
    headers = {"Accept": "application/openmetrics-text", "Accept-Encoding": "gzip"}
    while not ended.wait(1.0):
        if on.is_set():
            for port in listening(pid):
                with suppress(OSError):
                    _OPEN(Request(f"http://127.0.0.1:{port}/metrics", headers=headers), timeout=1).read()


def watched(training: Training, seconds: float, block_seconds: float) -> list[Block]:
    """Blocks in the order of time, in pairs of one with telemetry and one without, in random order."""
    on, ended = threading.Event(), threading.Event()
    threading.Thread(target=_scrape_each_second, args=(training.pid, on, ended), daemon=True).start()
    count = 0
    while count < _WARM_STEPS:
        count += len(training.next_steps())
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until or len(found) % 2:
        is_on = not found[-1].on if len(found) % 2 else random.random() < 0.5
        training.turn(is_on)
        (on.set if is_on else on.clear)()
        training.next_steps()  # the step in which it was turned belongs to none
        block, began, before = Block(is_on), time.monotonic(), training.cpu_of_process()
        while time.monotonic() - began < block_seconds:
            block.cpu += training.next_steps()
        block.seconds = time.monotonic() - began
        block.supervisor = training.cpu_of_process() - before
        found.append(block)
    ended.set()
    return found


def alone(training: Training, seconds: float) -> float:
    """CPU seconds that the supervisor needs in a second where nobody scrapes."""
    training.turn(True)
    time.sleep(2.0)
    began, before = time.monotonic(), training.cpu_of_process()
    time.sleep(seconds)
    return (training.cpu_of_process() - before) / (time.monotonic() - began)


def measure(store: str, channel: str, seconds: float, block_seconds: float, batch_rows: int) -> None:
    """Print what telemetry adds to the CPU time of a step of the demo's model."""
    with tempfile.TemporaryDirectory() as scratch:
        training = Training(store, channel, batch_rows, scratch)
        try:
            blocks = watched(training, seconds, block_seconds)
            quiet = alone(training, seconds / 5)
        finally:
            training.end()
    ratios = []
    for one, other in zip(blocks[::2], blocks[1::2], strict=True):
        with_it, without = (one, other) if one.on else (other, one)
        ratios.append(math.log(statistics.fmean(with_it.cpu) / statistics.fmean(without.cpu)))
    draws = sorted(statistics.fmean(random.choices(ratios, k=len(ratios))) for _ in range(_DRAWS))
    low, high = draws[int(0.025 * _DRAWS)], draws[int(0.975 * _DRAWS)]
    steps = sum(len(block.cpu) for block in blocks)
    mean = statistics.fmean(each for block in blocks for each in block.cpu)
    served = [block for block in blocks if block.on]
    own = sum(block.supervisor for block in served) / sum(block.seconds for block in served)
    trained = sum(sum(block.cpu) for block in served) / sum(block.seconds for block in served)
    print(
        f"{steps} steps of {mean:.3f} s CPU in {len(ratios)} pairs of {block_seconds:g} s each, scraped "
        f"each second or with the supervisor stopped; load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"  CPU time of a rank's step, on beside off: {_percent(statistics.fmean(ratios))} (95 % interval "
        f"{_percent(low)} to {_percent(high)}), median of pairs {_percent(statistics.median(ratios))}"
    )
    cores = os.cpu_count() or 1
    each_15 = quiet + max(own - quiet, 0.0) / 15
    print(
        f"  the supervisor: {1000 * own:.1f} ms CPU a second scraped each second, {1000 * quiet:.1f} with "
        f"no scraper, so {1000 * each_15:.1f} scraped every 15 s: {100 * each_15 / cores:.2f} % of {cores} "
        f"cores, {100 * each_15 / trained:.2f} % of what the rank used"
    )


def _percent(log_ratio: float) -> str:
    return f"{100 * math.expm1(log_ratio):+.2f} %"
