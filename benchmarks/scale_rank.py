"""One rank of benchmarks/scale_measure.py: trains and sends what it is told to, line by line.

It reads JSON lines from stdin and answers each with one on stdout. All ranks of a group get the same lines.

    {"do": "train", "cell": {...}, "steps": 2}    seconds of forwards and backwards, and of the whole steps
    {"do": "send", "kind": "all-reduce", "elements": 1024, "times": 9}
    {"do": "exchange", "times": 9}                the flags that ranks exchange after each step
    {"do": "count", "cell": {...}}                what one step sends, by kind and type, from torch's profiler
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # DeepSpeed prints

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from scale_cells import VOCABULARY, Cell, options_of  # noqa: E402

from yanmo.model.decoder import Decoder  # noqa: E402
from yanmo.train.backends.accelerator import prepare  # noqa: E402
from yanmo.train.backends.engine import Engine  # noqa: E402
from yanmo.train.backends.open_engine import open_engine  # noqa: E402
from yanmo.train.backends.zero import import_deepspeed  # noqa: E402
from yanmo.train.collectives import Collectives  # noqa: E402
from yanmo.train.data import Batch  # noqa: E402
from yanmo.train.models.first_decoder import decoder_config  # noqa: E402

_BYTES = {"float": 4, "c10::BFloat16": 2, "double": 8}
_KINDS = {
    "gloo:all_reduce": "all-reduce",
    "c10d::_reduce_scatter_base_": "reduce-scatter",
    "c10d::_allgather_base_": "all-gather",
}


class Rank:
    """The engines of this rank, one by shape, stage and optimizer; a batch may be of any length."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self._engines: dict[str, Engine] = {}
        self._number = 0

    def engine(self, cell: Cell) -> Engine:
        """Made at its first use."""
        options = options_of(cell, self.ranks)
        kind = f"{options.width} {options.zero_stage} {options.optimizer} {options.precision}"
        if kind not in self._engines:
            torch.manual_seed(0)
            decoder = Decoder(decoder_config(options, VOCABULARY))
            decoder.initialize(torch.Generator().manual_seed(0), 0.02, "depth")
            prepare(decoder, options, "cpu")
            self._engines[kind] = open_engine(decoder, options, "cpu")
        return self._engines[kind]

    def step(self, cell: Cell) -> tuple[float, float]:
        """Seconds of forwards and backwards, and of the whole step."""
        engine, o = self.engine(cell), options_of(cell, self.ranks)
        began = time.perf_counter()
        for _ in range(o.accumulation):
            self._number += 1
            draw = np.random.default_rng([self._number, self.rank])
            ids = draw.integers(0, VOCABULARY, (o.micro_rows, o.context + 1))
            rows = Batch(ids[:, :-1], ids[:, 1:], np.ones((o.micro_rows, o.context), np.int64))
            engine.accumulate(rows, o.batch_rows * o.context)
        computed = time.perf_counter()
        engine.step()
        return computed - began, time.perf_counter() - began

    def train(self, cell: Cell, steps: int) -> dict[str, Any]:
        """Medians over the steps."""
        self.engine(cell)
        if self.ranks > 1:
            dist.barrier()
        cpu, found = time.process_time(), [self.step(cell) for _ in range(steps)]
        return {
            "compute": statistics.median(c for c, _ in found),
            "seconds": statistics.median(s for _, s in found),
            "cpu": (time.process_time() - cpu) / steps,
        }

    def send(self, kind: str, elements: int, times: int) -> dict[str, Any]:
        """Seconds of one collective over fp32 numbers: the median of the fastest third."""
        whole, part = torch.ones(elements), torch.ones(elements // self.ranks)
        calls: dict[str, Callable[[], object]] = {
            "all-reduce": lambda: dist.all_reduce(whole),
            "all-gather": lambda: dist.all_gather_into_tensor(whole, part),
        }
        return {"seconds": self._quick(calls[kind], times)}

    def exchange(self, times: int) -> dict[str, Any]:
        """Median seconds of the exchange of flags."""
        together = Collectives(self.ranks, torch.device("cpu"))
        flags = torch.zeros(5, dtype=torch.float64)
        return {"seconds": self._quick(lambda: together.sums(flags), times)}

    def _quick(self, call: Callable[[], object], times: int) -> float:
        found = []
        for _ in range(times):
            dist.barrier()
            began = time.perf_counter()
            call()
            found.append(time.perf_counter() - began)
        return statistics.median(sorted(found)[: max(1, times // 3)])

    def count(self, cell: Cell) -> dict[str, Any]:
        """Bytes of the whole buffers that one step reduces and gathers, by kind."""
        for _ in range(2):
            self.step(cell)
        with torch.profiler.profile(record_shapes=True) as profile:
            self.step(cell)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        found: Counter[str] = Counter()
        for event in events:
            given = event.get("args", {})
            kind = _KINDS.get(event.get("name", ""))
            dims, types = given.get("Input Dims"), given.get("Input type")
            if kind and dims and types:
                at = 1 if kind == "reduce-scatter" else 0  # its first argument is the part that stays
                elements = int(np.prod(dims[at])) if dims[at] else 1
                found[f"{kind} {types[at]}"] += elements * _BYTES.get(types[at], 0)
        for name, size in list(found.items()):  # gloo has no reduce-scatter: it reduces all, and keeps a part
            kind, _, number = name.partition(" ")
            if kind == "reduce-scatter":
                found[f"all-reduce {number}"] -= size
        return {"sent": dict(+found), "parameters": options_of(cell, self.ranks).num_parameters(VOCABULARY)}


def main() -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    import_deepspeed("cpu")
    one = Rank(rank, ranks)
    for line in sys.stdin:
        task = json.loads(line)
        found = getattr(one, task.pop("do"))(**task)
        print(json.dumps(found), file=_ANSWERS, flush=True)


if __name__ == "__main__":
    main()
