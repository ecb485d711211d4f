"""What a model cost: wall time, CPU time, GPU-hours and energy, by stage, from what each stage recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yanmo.formats.stage_cost import stage_cost
from yanmo.store.output import Output


def cost_report(outputs: Iterable[Output]) -> dict[str, Any]:
    """{"stages": [...], "total": {...}}; a value that could not be measured is None.

    What a paused stage counts: `formats/stage_cost.py`.
    """
    stages = [_stage(output) for output in outputs if output.entries("metrics.prom")]
    names = ("seconds", "cpu_seconds", "gpu_hours", "kwh")
    total = {name: _sum(stage[name] for stage in stages) for name in names}
    if any(stage["gpu_hours"] is None for stage in stages):  # not 0 hours where it is not known
        total["gpu_hours"] = None
    return {"stages": stages, "total": total}


def _stage(output: Output) -> dict[str, Any]:
    manifest = output.manifest
    head = {"stage": manifest.stage, "key": manifest.key, "made_at": manifest.created_at}
    return {**head, **vars(stage_cost(output))}


def _sum(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None
