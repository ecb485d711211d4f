"""What a verdict cost: wall time, CPU time, GPU-hours and energy, by output, from what each one recorded.

Rows add up: a record counts from the start of a stage's process to the end of its work, parts made after
that have their own, and the time of one pipeline run that is in no record (processes that start and end,
references handed over) is a figure of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.formats.stage_cost import Span, StageCost, stage_cost, stage_span
from yanmo.store.output import Output

_COSTS = ("seconds", "cpu_seconds", "gpu_hours", "kwh")


@dataclass(frozen=True, kw_only=True)
class Judging:
    """The run that makes the page, as far as it has come."""

    key: str
    made_at: str
    run_id: str
    """Of the pipeline run; empty for a stage that was run by itself."""
    span: Span
    cpu_seconds: float


def cost_report(outputs: Iterable[Output], judging: Judging) -> dict[str, Any]:
    """{"stages": [...], "between_seconds": ..., "total": {...}}, stages as they were made, this run the last.

    A value that was not measured is None.

    What a paused stage counts: `formats/stage_cost.py`.

    Args:
        outputs: those without a record, and repeated ones, are left out.
    """
    recorded = _recorded(outputs)
    rows = [_row(o.manifest.stage, o.manifest.key, o.manifest.created_at, stage_cost(o)) for o in recorded]
    own = StageCost(seconds=judging.span.seconds, cpu_seconds=judging.cpu_seconds, gpu_hours=0.0)
    rows.append(_row("promote", judging.key, judging.made_at, own))
    spans = [stage_span(o) for o in recorded if judging.run_id and o.manifest.run_id == judging.run_id]
    between = between_seconds([judging.span, *(span for span in spans if span)])
    total = _total(rows)
    total["seconds"] = (total["seconds"] or 0.0) + between
    return {"stages": rows, "between_seconds": between, "total": total}


def _recorded(outputs: Iterable[Output]) -> list[Output]:
    """Those with a record of what they cost, each once, as they were made."""
    made = {(output.manifest.stage, output.manifest.key): output for output in outputs}
    recorded = [output for output in made.values() if output.entries("metrics.prom")]
    return sorted(recorded, key=lambda output: output.manifest.created_at)


def _total(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    total = {name: _sum(row[name] for row in rows) for name in _COSTS}
    if any(row["gpu_hours"] is None for row in rows):  # not 0 hours where it is not known
        total["gpu_hours"] = None
    return total


def _row(stage: str, key: str, made_at: str, cost: StageCost) -> dict[str, Any]:
    return {"stage": stage, "key": key, "made_at": made_at, **vars(cost)}


def between_seconds(spans: Sequence[Span]) -> float:
    """Seconds from the first beginning to the last end that no span covers.

    Pods' clocks may differ: spans that seem to overlap leave nothing between them.
    """
    left, end = 0.0, min(span.began for span in spans)
    for span in sorted(spans, key=lambda span: span.began):
        left += max(span.began - end, 0.0)
        end = max(end, span.began + span.seconds)
    return left


def _sum(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None
