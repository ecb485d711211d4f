"""Run as a process: the peaks of its memory at the moments of a training.

    python peak_of.py BACKEND each FOLDER        the peak of each moment of OPTIONS' training
    python peak_of.py BACKEND all FOLDER FLAGS   one peak, beside the estimate: the table of
    benchmarks/NOTES.md

FLAGS are those of `yanmo train`; the vocabulary is 8,192 then. One process does all: importing torch and
DeepSpeed takes longer than the moments do.
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
from yanmo.train.backends.accelerator import prepare
from yanmo.train.backends.engine import Engine
from yanmo.train.backends.plain import open_engine
from yanmo.train.backends.process_group import Collectives
from yanmo.train.checkpoints import checkpoint, writer
from yanmo.train.checkpoints.checkpoint import Position
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch
from yanmo.train.health.monitor import Monitor
from yanmo.train.memory.estimate import estimate
from yanmo.train.metrics.utilization import resident_memory
from yanmo.train.models.decoders import decoder_config
from yanmo.train.options.recipe_options import num_parameters

MOMENTS = ("backward", "checkpoint", "export", "monitor")
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


def main(backend: str, asked: str, folder: str, *flags: str) -> None:
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
    training = Training(open_engine(decoder, options, "cpu"), options, vocabulary, Path(folder))
    if asked == "each":
        training.backward()
        for moment in MOMENTS:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins at what is held
            getattr(training, moment)()
            print(moment, resident_memory()[1])
        return
    training.monitor(steps=2)
    training.checkpoint()
    training.export()
    peak, output = resident_memory()[1], estimate(options, vocabulary, "cpu").total
    print(f"estimate {output / 1e9:.2f} GB, peak {peak / 1e9:.2f} GB, ratio {output / peak:.2f}")


class Training:
    """The moments of a training that need the most memory; each leaves nothing behind but a step."""

    def __init__(self, engine: Engine, options: TrainConfig, vocabulary: int, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        shape = (options.micro_rows, options.context)
        ids = np.random.default_rng(0).integers(0, vocabulary, (shape[0], shape[1] + 1))
        self.rows = Batch(ids[:, :-1], ids[:, 1:], np.ones(shape, np.int64))

    def backward(self) -> None:
        self.engine.accumulate(self.rows, self.rows.num_targets)
        self.engine.step()

    def monitor(self, steps: int = 1) -> None:
        monitor = Monitor(self.engine, Collectives(1, self.engine.device), "fast", 1, 0)
        for step in range(1, steps + 1):
            self.engine.accumulate(self.rows, self.rows.num_targets)
            assert monitor.begin(step)
            self.engine.step()
            monitor.end(step, self.rows)

    def checkpoint(self) -> None:
        """Its copy is held until the training has gone on."""
        may_write, write = threading.Event(), checkpoint.write_rank
        writer.checkpoint.write_rank = lambda *a: may_write.wait() and write(*a)
        writing = writer.Writer(self.engine, self.folder, Collectives(1, self.engine.device))
        writing.begin(Position(2, {}, {}))
        self.backward()
        may_write.set()
        writing.finish()

    def export(self) -> None:
        weights = self.engine.full_weights()
        whole = Decoder(self.engine.decoder.config)
        whole.load_state_dict(weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
