"""What benchmarks/scale.py --measure trains and sends, as options of `yanmo train`."""

from __future__ import annotations

from typing import Any

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig

VOCABULARY = 8192
Cell = dict[str, Any]
"""Options of `yanmo train`: of a shape of SHAPES, and what differs from ours here."""
SHAPES: dict[str, dict[str, int]] = {
    "narrow": {"layers": 3, "width": 192, "heads": 3, "kv_heads": 1, "head_width": 64, "feed_forward": 512},
    "wide": {"layers": 6, "width": 384, "heads": 6, "kv_heads": 2, "head_width": 64, "feed_forward": 1024},
}
"""The demo's shape, and one of 15 M parameters."""
_OURS = {
    "device": "cpu",
    "packing": "one",
    "optimizer": "adamw",
    "zero_stage": 1,
    "precision": "fp32",
    "frequent_tokens": 0,
}
NARROW = {"shape": "narrow", "context": 64, "batch_rows": 16}
CELLS: dict[str, Cell] = {
    "narrow, 64": NARROW,
    "narrow, 256": {"shape": "narrow", "context": 256, "batch_rows": 8},
    "wide, 64": {"shape": "wide", "context": 64, "batch_rows": 8},
    "wide, 256": {"shape": "wide", "context": 256, "batch_rows": 4},
    "narrow, 64, Muon": {**NARROW, "optimizer": "muon"},
    "narrow, 64, rows one by one": {**NARROW, "micro_batch": 1},
    "narrow, 64, ZeRO-2": {**NARROW, "zero_stage": 2},
    "narrow, 64, ZeRO-3": {**NARROW, "zero_stage": 3},
}
"""Name -> what is trained in it: rows of the whole batch, ZeRO-1, AdamW and one forward where not said."""
SIZES = tuple(2**i for i in range(8, 25, 2))
"""fp32 numbers of a collective."""
COUNTED: dict[str, Cell] = {
    f"ZeRO-{stage}": {
        "shape": "wide",
        "context": 64,
        "batch_rows": 8,
        "micro_batch": 2,
        "zero_stage": stage,
        "precision": "bf16",
    }
    for stage in (1, 2, 3)
}
"""Two forwards a step on two ranks, in bf16."""


def options_of(cell: Cell, ranks: int) -> TrainConfig:
    """The options of `yanmo train` that a cell stands for."""
    given = {k: v for k, v in cell.items() if k != "shape"}
    flags = {**_OURS, **SHAPES[cell["shape"]], **given, "ranks": ranks}
    return load(TrainConfig, [f"--{n.replace('_', '-')}={v}" for n, v in flags.items()], "scale")
