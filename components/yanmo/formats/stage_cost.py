"""What a stage recorded of its cost: metrics.prom of any stage, metrics.jsonl of a training.

A stage that was paused and went on counts its last process only, but for the training's seconds and the CPU
time of its steps, which its checkpoints carry on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from yanmo.common.errors import DataError
from yanmo.common.plain_json import json_value
from yanmo.store.output import Output

log = logging.getLogger(__name__)
_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """The cost of one output; None where it was not measured."""

    seconds: float | None = None
    """By the clock on the wall."""
    cpu_seconds: float | None = None
    gpu_hours: float | None = None
    """0 of a stage that says that it ran on a CPU."""
    kwh: float | None = None


def stage_cost(output: Output) -> StageCost:
    """Return the cost of `output`; damaged or absent records are not known, and a warning says so."""
    manifest, found = output.manifest, _metrics(output)
    name = manifest.stage
    seconds = found.get(f"yanmo_{name}_duration_seconds")
    trained = finite(manifest.metadata.get("seconds"))
    if trained and (seconds is None or trained > seconds):
        seconds = trained
    steps = steps_cpu_seconds(training_lines(output)) if output.entries("metrics.jsonl") else None
    cpu = [found.get(f"yanmo_{name}_cpu_seconds"), steps]
    joules = [v for label, v in found.items() if label.startswith(f"yanmo_{name}_energy_joules")]
    return StageCost(
        seconds=seconds,
        cpu_seconds=max((v for v in cpu if v is not None), default=None),
        gpu_hours=_gpu_hours(manifest.metadata, manifest.execution, seconds),
        kwh=sum(joules) / _JOULES_PER_KWH if joules else None,
    )


def training_lines(model: Output) -> list[dict[str, Any]]:
    """Return the lines of a training's record that have a step; none where it cannot be read."""
    try:
        text = model.path("metrics.jsonl").read_text(encoding="utf-8")
    except (DataError, UnicodeDecodeError) as error:
        log.warning("no record of the training: %s", error)
        return []
    return _lines_in(text)


def _lines_in(text: str) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl that have a step, without what a kill has damaged."""
    found = []
    for line in filter(str.strip, text.splitlines()):
        try:
            value = json_value(line)
        except ValueError:  # cut by a kill
            continue
        if isinstance(value, dict) and isinstance(value.get("step"), int):
            found.append(value)
    return found


def steps_cpu_seconds(lines: Iterable[Mapping[str, Any]]) -> float | None:
    """CPU time of a training's steps over all its processes and ranks; None where no line has it."""
    known = [v for line in lines if (v := finite(line.get("cpu_seconds"))) is not None]
    return known[-1] if known else None


def finite(value: Any) -> float | None:
    """Return a number that was read from JSON, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond every float
        return None


def _gpu_hours(
    metadata: Mapping[str, Any], execution: Mapping[str, Any], seconds: float | None
) -> float | None:
    """GPUs x hours of a stage that says it ran on GPUs, 0 of others; None where it does not say."""
    device = str(metadata.get("device") or execution.get("device") or "cpu")
    if device == "auto" or seconds is None:
        return None
    ranks = finite(metadata.get("ranks", execution.get("ranks", 1)))
    if not device.startswith("cuda"):
        return 0.0
    return None if ranks is None else ranks * seconds / 3600


def _metrics(output: Output) -> dict[str, float]:
    """Samples of metrics.prom: name, or name{label values} -> value."""
    if not output.entries("metrics.prom"):
        return {}
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
