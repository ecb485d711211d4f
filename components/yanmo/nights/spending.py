"""What the processes of a night used, stage by stage: its cost, whatever came of it."""

from __future__ import annotations

from collections.abc import Iterable

from yanmo.common.errors import DataError
from yanmo.formats.stage_cost import stage_cost
from yanmo.store.output import Output
from yanmo.store.runs.failure_card import survived


def spent(seconds: float, cpu_seconds: float, made: Iterable[Output]) -> dict[str, float | None]:
    """The cost of a process.

    Args:
        seconds: from its start, by the wall's clock.
        cpu_seconds: of it and of those that it started.
        made: what it made, which recorded GPU-hours and energy.
    """
    costs = [stage_cost(output) for output in made]
    hours = [cost.gpu_hours for cost in costs if cost.gpu_hours]
    energy = [cost.kwh for cost in costs if cost.kwh is not None]
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        **({"gpu_hours": sum(hours)} if hours else {}),
        **({"kwh": sum(energy)} if energy else {}),
    }


def faults(output: Output) -> int:
    """Failed tries that came before an output."""
    try:
        return len(survived(output))
    except (OSError, DataError):
        return 0
