"""What the processes of a night used, stage by stage: its cost, whatever came of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yanmo.common.errors import DataError
from yanmo.formats.stage_cost import gpus_of, stage_cost
from yanmo.nights.night import finite
from yanmo.store.output import Output
from yanmo.store.runs.failure_card import survived


def spent(seconds: float, cpu_seconds: float, made: Iterable[Output]) -> dict[str, float | None]:
    """The cost of a process, but for GPU-hours, which follow from the GPUs that it holds.

    Args:
        seconds: from its start, by the wall's clock.
        cpu_seconds: of it and of those that it started.
        made: what it made, which recorded energy.
    """
    energy = [kwh for output in made if (kwh := stage_cost(output).kwh) is not None]
    found: dict[str, float | None] = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}
    return {**found, **({"kwh": sum(energy)} if energy else {})}


def gpus_held(options: Any, made: Iterable[Output]) -> float | None:
    """How many GPUs a process holds: by what it made, else by its options; None where neither says it.

    Not by the hours that an output recorded: those of a training that went on are of other nights as well.
    """
    by_outputs = max((gpus_of(output) for output in made), default=0.0)
    if by_outputs:
        return by_outputs
    device = getattr(options, "device", "cpu")
    if device == "cuda":
        return finite(getattr(options, "world_size", 1))
    return 0.0 if device == "cpu" else None


def faults(output: Output) -> int:
    """Failed tries that came before an output."""
    try:
        return len(survived(output))
    except (OSError, DataError):
        return 0
