"""A step of training, beside a bare torch loop and transformers' Trainer."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.declared import Benchmark, Group, Place
from yanmo.common.freed_memory import keep_freed_memory

_SIZES = {"tiny": (2, 16, 64, "4.3 M", "430 万"), "small": (1, 4, 512, "39.9 M", "3990 万")}
"""Size -> steps of a round, rows of a step, their positions, and the parameters in words."""
_NAMES = {
    "deepspeed": "yanmo, DeepSpeed ZeRO-1",
    "torch": "yanmo, --backend torch",
    "bare": "bare torch loop, our decoder and loss",
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
    keep_freed_memory()
    yield [_group(train, size) for size in _SIZES]


def _group(train: Any, size: str) -> Group:
    """All contestants with a model of this size, each with rows of its own numbers."""
    steps, rows, positions, parameters, in_chinese = _SIZES[size]
    title = (
        f"A step of {rows} rows of {positions}, {parameters} parameters, fp32, AdamW",
        f"一步 {rows} 行 x {positions}，{in_chinese}参数，fp32，AdamW",
    )
    asked = argparse.Namespace(
        **{"device": "cpu", "size": size, "context": 0, "rows": rows, "vocabulary": 8192, "precision": ""},
        **{"optimizer": "adamw", "compile": False},
        threads=1,
    )
    task = train.Bench(asked)
    built = task.build(list(_NAMES))
    missing = sorted(set(_NAMES) - set(built))
    if missing:
        raise SystemExit(f"training: {', '.join(missing)} could not be made (see above)")
    return Group(title, {_NAMES[name]: task.speed(step, steps) for name, step in built.items()})


BENCHMARK = Benchmark(
    name="training",
    title=("Training", "训练"),
    unit=("tokens per CPU second", "每 CPU 秒词元数"),
    about=(
        "AdamW, one rank, one thread; documents fill the rows, none is padded.",
        "AdamW，单进程、单线程；每行都由文档填满，没有填充。",
    ),
    open=opened,
    in_chinese={
        "yanmo, DeepSpeed ZeRO-1": "yanmo，DeepSpeed ZeRO-1",
        "yanmo, --backend torch": "yanmo，--backend torch",
        "bare torch loop, our decoder and loss": "裸 torch 循环，我们的解码器与损失",
        "transformers' Trainer, DeepSpeed ZeRO-1": "transformers 的 Trainer，DeepSpeed ZeRO-1",
    },
    packages=("accelerate==1.15.0",),
    rounds=15,
    minutes=15,
)
