"""Run as a process: the peak of its memory while a training does one thing.

    python peak_of.py BACKEND MOMENT FOLDER [FLAGS]

MOMENT is backward, monitor, checkpoint, export, or all of them one after another. With flags of `yanmo train`
the training is theirs, with a vocabulary of 8,192, and the estimate is printed beside the peak: the table of
docs/train.md.
"""

import os
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import torch

from yanmo.model.decoder import Decoder
from yanmo.options.command_line import load
from yanmo.train.agreement import Agreement
from yanmo.train.backends.accelerator import prepare
from yanmo.train.backends.opening import open_engine
from yanmo.train.checkpoints import checkpoint, writer
from yanmo.train.checkpoints.checkpoint import Position
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch
from yanmo.train.health.monitor import Monitor
from yanmo.train.memory.estimate import estimate
from yanmo.train.metrics.machine import resident_memory
from yanmo.train.models.start import decoder_config
from yanmo.train.options.model import num_parameters

VOCABULARY = 4096
OPTIONS = {
    **{"layers": 6, "width": 768, "heads": 6, "kv_heads": 2, "head_width": 128, "feed_forward": 1920},
    **{"context": 32, "batch_rows": 1, "ranks": 1, "steps": 4, "warmup_steps": 1, "optimizer": "adamw"},
    **{"device": "cpu", "monitor_every": 1, "valid_characters": 0},
}
"""35 M parameters and 32 tokens: copies of all weights are what shows."""


def parameters() -> int:
    """Of the model."""
    names = ("layers", "width", "heads", "kv_heads", "head_width", "feed_forward")
    return num_parameters({name: OPTIONS[name] for name in names}, VOCABULARY)


def main(backend: str, moment: str, folder: str, *flags: str) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(names, MASTER_PORT=port)
    torch.set_num_threads(1)
    options, vocabulary = TrainConfig(**OPTIONS, backend=backend), VOCABULARY
    if flags:
        common = ["--ranks=1", "--device=cpu", "--monitor-every=1", f"--backend={backend}"]
        options, vocabulary = load(TrainConfig, [*common, *flags], "peak_of"), 8192
    decoder = Decoder(decoder_config(options, vocabulary))
    prepare(decoder, options, "cpu")
    engine = open_engine(decoder, options, "cpu")
    monitor = Monitor(
        engine, Agreement(1, engine.device), "fast" if moment in ("monitor", "all") else "off", 1, 0
    )
    shape = (options.micro_rows, options.context)
    ids = np.random.default_rng(0).integers(0, vocabulary, (shape[0], shape[1] + 1))
    rows = Batch(ids[:, :-1], ids[:, 1:], np.ones(shape, np.int64))
    count, may_write = rows.num_targets, threading.Event()
    for step in (1, 2):
        engine.accumulate(rows, count)
        watched = monitor.begin(step)
        engine.step()
        if watched:
            monitor.end(step, rows)
    if moment in ("checkpoint", "all"):  # whose copy is held until the training has gone on
        write = checkpoint.write_rank
        writer.checkpoint.write_rank = lambda *a: may_write.wait() and write(*a)
        writing = writer.Writer(engine, Path(folder), Agreement(1, engine.device))
        writing.begin(Position(2, {}, {}), keep=False)
        engine.accumulate(rows, count)
        engine.step()
        may_write.set()
        writing.finish()
    if moment in ("export", "all"):
        weights = engine.full_weights()
        whole = Decoder(decoder.config)
        whole.load_state_dict(weights)
    _, peak = resident_memory()
    if flags:
        said = estimate(options, vocabulary, "cpu").total
        print(f"estimate {said / 1e9:.2f} GB, peak {peak / 1e9:.2f} GB, ratio {said / peak:.2f}")
    print(peak)


if __name__ == "__main__":
    main(*sys.argv[1:])
