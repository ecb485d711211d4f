"""What the collapse monitor says of a healthy training of the demo's recipe, and of three that are sick.

    python benchmarks/monitor.py --store runs/demo --channel demo

needs a token cache in the channel (`make demo` leaves one). All four begin with the same weights and see the
same rows; each look is of `--monitor full`.

    healthy           the recipe
    rates x 30        all learning rates times 30
    peaked attention  the weights of the norms of queries and keys times 8: scores times 64
    dead units        seven in ten feed-forward units read and gate nothing, and get no gradient
"""

from __future__ import annotations

import argparse
import copy
import os
import socket
from collections.abc import Callable
from typing import Any

STEPS, EVERY, WARM_UP = 60, 20, 10
_HIGH = ("update_ratio",)
"""Figures of which the largest layer's is shown; of the others it is the smallest."""
_SHOWN = (
    "grad_norm",
    "update_ratio",
    "active_units",
    "effective_rank",
    "attention_entropy",
    "output_entropy",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True, help="folder or URI of the store")
    parser.add_argument("--channel", default="dev", help="channel whose token cache is trained on")
    parser.add_argument("--rows", type=int, default=16, help="rows of a step")
    asked = parser.parse_args()
    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(names, MASTER_PORT=_free_port(), OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    ground = Ground(asked.store, asked.channel, asked.rows)
    print(f"| training | step | loss | {' | '.join(_SHOWN)} | warned of |")
    print("|---|---|---|" + "---|" * (len(_SHOWN) + 1))
    for name, (rate, harm) in SICK.items():
        for line in ground.train(name, rate, harm):
            print(line, flush=True)


def _free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def nothing(decoder: Any) -> None:
    """Leave the model as it is."""


def peak_attention(decoder: Any) -> None:
    """Scores 64 times as far apart: softmax picks one position."""
    for layer in decoder.model.layers:
        layer.self_attn.q_norm.weight.data.mul_(8)
        layer.self_attn.k_norm.weight.data.mul_(8)


def kill_units(decoder: Any) -> None:
    """Units that are 0 and whose weights get no gradient: silu(0) x 0."""
    for layer in decoder.model.layers:
        dead = int(0.7 * len(layer.mlp.gate_proj.weight))
        layer.mlp.gate_proj.weight.data[:dead] = 0
        layer.mlp.up_proj.weight.data[:dead] = 0


SICK: dict[str, tuple[float, Callable[[Any], None]]] = {
    "healthy": (1.0, nothing),
    "rates x 30": (30.0, nothing),
    "peaked attention": (1.0, peak_attention),
    "dead units": (1.0, kill_units),
}


class Ground:
    """What all trainings share: rows and first weights."""

    def __init__(self, store: str, channel: str, rows: int) -> None:
        import torch

        from yanmo.formats.token_cache import TokenCache
        from yanmo.options.command_line import load
        from yanmo.store.opening import open_store
        from yanmo.store.output import open_reference
        from yanmo.store.pointers import read_pointer
        from yanmo.train.config import TrainConfig
        from yanmo.train.data import Samples
        from yanmo.train.models.first_decoder import new_decoder

        torch.set_num_threads(1)
        flags = ["--ranks=1", "--device=cpu", "--backend=torch", f"--batch-rows={rows}", f"--steps={STEPS}"]
        self.options = load(TrainConfig, [*flags, f"--warmup-steps={WARM_UP}"], "monitor")
        opened = open_store(store)
        cache = TokenCache.open(open_reference(opened, read_pointer(opened, channel, "tokenize")))
        self.samples = Samples(
            cache,
            packing=self.options.packing_plan,
            seed=0,
            tag_share=self.options.tag_share,
            pad=cache.special.pad,
        )
        self.first = new_decoder(self.options, cache, self.samples, draw=True)

    def train(self, name: str, rate: float, harm: Callable[[Any], None]) -> list[str]:
        """The rows of the table of one training."""
        import torch

        from yanmo.train.backends.open_engine import open_engine
        from yanmo.train.collectives import Collectives
        from yanmo.train.health.monitor import Monitor
        from yanmo.train.schedule import Schedule

        decoder = copy.deepcopy(self.first)
        harm(decoder)
        engine = open_engine(decoder, self.options, "cpu")
        monitor = Monitor(engine, Collectives(1, torch.device("cpu")), "full", EVERY, WARM_UP)
        batch_tokens = self.options.batch_rows * self.options.context
        schedule, lines = Schedule.of(self.options, batch_tokens), []
        for step in range(STEPS):
            engine.set_learning_rate(rate * schedule.at(step))
            batch = self.samples.batch(step * self.options.batch_rows, self.options.batch_rows)
            loss = engine.accumulate(batch, batch.num_targets)
            watched = monitor.begin(step + 1)
            engine.step()
            if watched:
                found = monitor.end(step + 1, batch)
                warned = sorted({figure for figure, _ in monitor._warned})
                lines.append(_row(name, step + 1, float(loss) / batch.num_targets, found, warned))
        return lines


def _row(name: str, step: int, loss: float, found: dict[str, Any], warned: list[str]) -> str:
    cells = []
    for figure in _SHOWN:
        values = found[figure] if isinstance(found[figure], dict) else {"": found[figure]}
        known = [value for value in values.values() if value is not None]
        worst = max if figure in _HIGH else min
        cells.append(f"{worst(known):.3g}" if known else "not finite")
    return f"| {name} | {step} | {loss:.3f} | {' | '.join(cells)} | {', '.join(warned) or '-'} |"


if __name__ == "__main__":
    main()
