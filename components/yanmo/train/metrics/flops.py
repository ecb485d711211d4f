"""`--flops`: FLOPs of a forward and backward pass by module, counted operation by operation.

Counted on the meta device: a decoder of the same shape without any data, so that it costs a second and no
memory, and nothing of the training can depend on it. A row is one document of the whole context, as in the
formula of the MFU (utilization.py), which it must agree with; only matrix products count there and here.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.train.job import FLOPS
from yanmo.train.metrics.utilization import flops_per_token

log = logging.getLogger(__name__)


def count_flops(shape: DecoderConfig, context: int) -> dict[str, Any]:
    """FLOPs per predicted token, of all and of each module, forward and backward together."""
    with torch.device("meta"):
        decoder = Decoder(shape)
        ids_BT = torch.zeros(1, context, dtype=torch.int64)
    decoder.attention = "flash"  # one document a row
    with FlopCounterMode(display=False) as counter:
        decoder(ids_BT).sum().backward()
    counted = counter.get_flop_counts()
    modules = {
        name.partition(".")[2]: sum(counts.values()) / context
        for name, counts in counted.items()
        if "." in name and counts
    }
    kinds = {str(kind).removeprefix("aten."): count / context for kind, count in counted["Global"].items()}
    return {
        "context": context,
        "flops_per_token": counter.get_total_flops() / context,
        "by_formula": flops_per_token(shape, context),
        "operations": kinds,
        "modules": dict(sorted(modules.items())),
    }


def write_flops(folder: Path, shape: DecoderConfig, context: int) -> None:
    """Count, log the shares of the parts, and write flops.json into the folder."""
    found = count_flops(shape, context)
    total = found["flops_per_token"]
    (folder / FLOPS).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    parts = {"attention": ".self_attn", "feed-forward": ".mlp"}
    shares = {
        part: sum(count for name, count in found["modules"].items() if name.endswith(end))
        for part, end in parts.items()
    }
    shares["head"] = found["modules"].get("lm_head", 0.0)
    said = ", ".join(f"{part} {100 * count / total:.1f} %" for part, count in shares.items())
    log.info("%.4g FLOPs per token forward and backward: %s; by module in %s", total, said, FLOPS)
