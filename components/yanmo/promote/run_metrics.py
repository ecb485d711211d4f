"""The few numbers of a run that KFP's page "Compare runs" shows, one column a run.

No other stage hands KFP an artifact of the type Metrics: each would be one more column of every run, most of
its rows empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.formats.kfp_metrics import bits_metrics
from yanmo.promote.gate.guards import found


def run_metrics(report: Mapping[str, Any], promoted: bool) -> dict[str, float]:
    """Bits, gain, size, cost and outcome, by names that hold the unit; without what was not measured.

    The page shows 23 characters of a name; what is behind them, the unit, would be cut.
    """
    cost, training = report["cost"]["total"], report["training"]
    gain = found(report["verdict"]["gain"], "share")
    values = {
        "promoted_1_or_0": (float(promoted), 1),
        "gain_percent": (gain, 100),
        "contamination_percent": (found(report["contamination"], "share"), 100),
        "longest_copy_characters": (report["guards"].get("longest_copy"), 1),
        "parameters_millions": (found(training, "parameters"), 1e-6),
        "train_steps": (found(training, "steps"), 1),
        "train_tokens_millions": (found(training, "tokens"), 1e-6),
        "cost_wall_minutes": (cost["seconds"], 1 / 60),
        "cost_cpu_minutes": (cost["cpu_seconds"], 1 / 60),
        "cost_gpu_hours": (cost["gpu_hours"], 1),
        "cost_energy_kwh": (cost["kwh"], 1),
    }
    measured = {name: round(v * factor, 3) for name, (v, factor) in values.items() if v is not None}
    challenger = report["bits_per_character"]["columns"][0]
    genres = {genre: cell["value"] for genre, cell in challenger["rows"].items()}
    return bits_metrics(challenger["mean"]["value"], genres) | measured
