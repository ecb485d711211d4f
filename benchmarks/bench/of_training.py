"""A step of training, beside a bare torch loop, nanoGPT-like code and transformers' Trainer."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.declared import Benchmark, Group, Place
from bench.rounds import cpu_seconds

_STEPS = 2
_NAMES = {
    "deepspeed": "yanmo, DeepSpeed ZeRO-1",
    "torch": "yanmo, --backend torch",
    "bare": "bare torch loop, our decoder and loss",
    "nanogpt": "nanoGPT-like code",
    "hf-deepspeed": "transformers' Trainer, DeepSpeed ZeRO-1",
}


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """All contestants in one process, with the same shape, first weights and rows."""
    del place
    from yanmo.train.backends.zero import import_deepspeed

    import_deepspeed("cpu")
    import torch
    import train

    torch.set_num_threads(1)
    asked = argparse.Namespace(
        **{"device": "cpu", "size": "tiny", "context": 0, "rows": 16, "vocabulary": 8192, "precision": ""},
        **{"optimizer": "adamw", "compile": False, "gradient_checkpointing": False, "deepspeed_config": ""},
        **{"steps": _STEPS, "repeats": 1, "threads": 1},
    )
    task = train.Bench(asked)
    built = task.build(list(_NAMES))
    missing = sorted(set(_NAMES) - set(built))
    if missing:
        raise SystemExit(f"training: {', '.join(missing)} could not be made (see above)")
    numbers = itertools.count()

    def speed(step: Callable[[int], object]) -> Callable[[], float]:
        def steps() -> None:
            with contextlib.redirect_stdout(sys.stderr):
                for _ in range(_STEPS):
                    step(next(numbers))

        return lambda: _STEPS * task.tokens / cpu_seconds(steps)

    titles = (
        "A step of 16 rows of 64, 4.3 M parameters, fp32, AdamW",
        "一步 16 行 x 64，430 万参数，fp32，AdamW",
    )
    yield [Group(titles, {_NAMES[name]: speed(step) for name, step in built.items()})]


BENCHMARK = Benchmark(
    name="training",
    title=("Training", "训练"),
    unit=("tokens per CPU second", "每 CPU 秒词元数"),
    about=(
        "The demo's shape with AdamW in all of them, one rank, one thread, in one process. Documents fill "
        "the rows, none is padded.",
        "demo 的模型形状，各方都用 AdamW，单进程、单线程，在同一个进程里。每行都由文档填满，没有填充。",
    ),
    open=opened,
    packages=("accelerate==1.15.0",),
    rounds=9,
    minutes=4,
)
