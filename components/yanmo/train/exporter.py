"""The newest figures of metrics.jsonl on /metrics."""

from __future__ import annotations

from pathlib import Path

from yanmo.common.stage_run import StageRun
from yanmo.train import job

_GAUGES = {
    "loss": "Loss of the last interval, nats per token",
    "bits_per_character": "Training loss of the last interval, bits per character",
    "learning_rate": "Learning rate of the matrices",
    "grad_norm": "Norm of the gradient before clipping",
    "tokens_per_second": "Tokens trained on per second",
    "step": "Optimizer steps done",
}


def show(run: StageRun, folder: Path) -> None:
    """Put the newest lines of metrics.jsonl on /metrics."""
    path = folder / job.METRICS
    size = path.stat().st_size if path.exists() else 0
    if size == run.extra.get("metrics_bytes"):
        return
    run.extra["metrics_bytes"] = size
    for line in job.read_metrics(path)[-2:]:
        for name, help in _GAUGES.items():
            if name in line:
                run.telemetry.gauge(name, help).set(line[name])
        for genre, bits in line.get("valid_bits_per_character", {}).items():
            gauge = run.telemetry.gauge(
                "valid_bits_per_character", "Validation bits per character", ("genre",)
            )
            gauge.labels(genre).set(bits)
