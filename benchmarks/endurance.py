"""What checkpoints and the collapse monitor cost a training of the size `small` (40 M parameters) on one CPU.

    python benchmarks/endurance.py [--size small] [--micro-rows 1]

Saves: seconds that the training waits (copy of the state in memory) and seconds of CPU of all that a thread
then does (write, sync, hash, commit), each as a share of the 10 minutes between two checkpoints.
Monitor: CPU seconds of one look beside those of one step.

A busy machine changes CPU seconds little; wall seconds are beside them.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

INTERVAL_SECONDS = 600
VOCABULARY = 8192


def median_of(action: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median wall and CPU seconds of this thread."""
    wall, cpu = [], []
    for _ in range(repeats):
        began, cpu_began = time.monotonic(), time.thread_time()
        action()
        wall.append(time.monotonic() - began)
        cpu.append(time.thread_time() - cpu_began)
    return statistics.median(wall), statistics.median(cpu)


def open_training(size: str, rows: int) -> tuple[Any, Any]:
    """An engine with a random model of that size, and a batch of random rows."""
    import numpy as np
    import torch

    from yanmo.model.decoder import Decoder
    from yanmo.options.command_line import load
    from yanmo.train.backends.open_engine import open_engine
    from yanmo.train.config import TrainConfig
    from yanmo.train.data import Batch
    from yanmo.train.models.first_decoder import decoder_config

    torch.set_num_threads(1)
    flags = [f"--size={size}", "--ranks=1", "--device=cpu", "--start=random", f"--batch-rows={rows}"]
    options = load(TrainConfig, flags, "endurance")
    decoder = Decoder(decoder_config(options, VOCABULARY))
    decoder.initialize(torch.Generator().manual_seed(0), 1.0)
    engine = open_engine(decoder, options, "cpu")
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (rows, options.context + 1))
    return engine, Batch(ids[:, :-1], ids[:, 1:], np.ones((rows, options.context), np.int64))


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def one_step(engine: Any, batch: Any) -> None:
    engine.accumulate(batch, batch.num_targets)
    engine.step()


def saves(engine: Any, root: Path) -> None:
    """Print what a checkpoint costs."""
    from yanmo.train.checkpoints import checkpoint
    from yanmo.train.checkpoints.checkpoint import Position
    from yanmo.train.checkpoints.writer import Writer
    from yanmo.train.collectives import Collectives

    writer = Writer(engine, root, Collectives(1, engine.device))
    numbers = iter(range(100))
    copies = median_of(lambda: checkpoint.snapshot(engine), 7)

    def whole() -> None:
        writer.begin(Position(next(numbers), {}, {}), keep=False)
        writer.finish()

    process = time.process_time()
    wall, _ = median_of(whole, 5)
    process = (time.process_time() - process) / 5
    folder = checkpoint.newest(root)
    assert folder
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"checkpoint of {size / 1e6:.0f} MB")
    print(f"  training waits for the copy: {copies[0]:.2f} s wall, {copies[1]:.2f} s CPU:", end=" ")
    print(f"{copies[0] / INTERVAL_SECONDS:.2%} of 10 minutes ({copies[1] / INTERVAL_SECONDS:.2%} by CPU)")
    print(f"  copy, write, sync, hash, commit: {wall:.2f} s wall, {process:.2f} s CPU,", end=" ")
    print(
        f"{wall / INTERVAL_SECONDS:.2%} of 10 minutes if training waited ({process / INTERVAL_SECONDS:.2%})"
    )


def looks(engine: Any, batch: Any) -> None:
    """Print what a look of the monitor costs."""
    from yanmo.train.collectives import Collectives
    from yanmo.train.health.monitor import Monitor

    collectives = Collectives(1, engine.device)
    costs = {}
    for mode in ("off", "fast", "full"):
        monitor = Monitor(engine, collectives, mode, 1, 10**9)

        def step(monitor: Monitor = monitor) -> None:
            watched = monitor.begin(1)
            one_step(engine, batch)
            if watched:
                monitor.end(1, batch)

        step()
        costs[mode] = median_of(step, 5)[1]
    print(f"one step of {len(batch.ids_BT)} rows of {batch.ids_BT.shape[1]}: {costs['off']:.2f} s CPU")
    for mode in ("fast", "full"):
        extra = max(costs[mode] - costs["off"], 0.0)
        print(
            f"  a look, {mode}: {extra:.2f} s CPU; "
            f"every 100 steps {extra / costs['off'] / 100:.2%} of the time"
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--size", default="small", help="tiny, small, medium or large")
    arguments.add_argument("--micro-rows", type=int, default=1, help="rows of a step")
    arguments.add_argument("--folder", type=Path, help="where to write checkpoints; default: a temporary one")
    given = arguments.parse_args()
    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(names, MASTER_PORT=free_port(), OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    engine, batch = open_training(given.size, given.micro_rows)
    one_step(engine, batch)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        saves(engine, Path(folder))
    looks(engine, batch)


if __name__ == "__main__":
    main()
