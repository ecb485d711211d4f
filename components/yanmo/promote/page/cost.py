"""What a model cost: wall time, CPU time, GPU-hours and energy, by stage, from what each stage recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from yanmo.common.errors import DataError
from yanmo.promote.page.training import steps_cpu_seconds
from yanmo.store.output import Output

log = logging.getLogger(__name__)
_JOULES_PER_KWH = 3.6e6


def cost_report(outputs: Iterable[Output]) -> dict[str, Any]:
    """{"stages": [...], "total": {...}}; a value that could not be measured is None.

    A stage that was paused and went on counts its last process only, but for the training's seconds and the
    CPU time of its steps, which its checkpoints carry on.
    """
    stages = [_stage(output) for output in outputs if output.entries("metrics.prom")]
    names = ("seconds", "cpu_seconds", "gpu_hours", "kwh")
    total = {name: _sum(stage[name] for stage in stages) for name in names}
    if any(stage["gpu_hours"] is None for stage in stages):  # not 0 hours where it is not known
        total["gpu_hours"] = None
    return {"stages": stages, "total": total}


def _stage(output: Output) -> dict[str, Any]:
    manifest, found = output.manifest, _metrics(output)
    name = manifest.stage
    seconds = found.get(f"yanmo_{name}_duration_seconds")
    trained = manifest.metadata.get("seconds")
    if trained and (seconds is None or trained > seconds):
        seconds = float(trained)
    cpu = [found.get(f"yanmo_{name}_cpu_seconds"), steps_cpu_seconds(output)]
    joules = [v for label, v in found.items() if label.startswith(f"yanmo_{name}_energy_joules")]
    return {
        "stage": name,
        "key": manifest.key,
        "made_at": manifest.created_at,
        "seconds": seconds,
        "cpu_seconds": max((v for v in cpu if v is not None), default=None),
        "gpu_hours": _gpu_hours(manifest.metadata, manifest.execution, seconds),
        "kwh": sum(joules) / _JOULES_PER_KWH if joules else None,
    }


def _gpu_hours(
    metadata: Mapping[str, Any], execution: Mapping[str, Any], seconds: float | None
) -> float | None:
    """GPUs x hours of a stage that says it ran on GPUs, 0 of others; None where it does not say."""
    device = str(metadata.get("device") or execution.get("device") or "cpu")
    if device == "auto" or seconds is None:
        return None
    ranks = metadata.get("ranks", execution.get("ranks", 1))
    return ranks * seconds / 3600 if device.startswith("cuda") else 0.0


def _metrics(output: Output) -> dict[str, float]:
    """Samples of metrics.prom: name, or name{label values} -> value."""
    try:
        families = list(
            text_string_to_metric_families(output.path("metrics.prom").read_text(encoding="utf-8"))
        )
    except (DataError, ValueError) as error:
        log.warning("%s: no record of its cost: %s", output, error)
        return {}
    return {
        sample.name + "".join(sorted(sample.labels.values())): float(sample.value)
        for family in families
        for sample in family.samples
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None
