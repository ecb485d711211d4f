"""metrics.jsonl on /metrics, as its lines come; nothing here asks the workers anything."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from yanmo.stage.exporter import Telemetry
from yanmo.train import job

_GAUGES = {
    "loss": "Loss of the last interval, nats per token",
    "perplexity": "exp of the loss",
    "bits_per_character": "Training loss of the last interval, bits per character",
    "learning_rate": "Learning rate of the matrices",
    "grad_norm": "Norm of the gradient before clipping",
    "tokens_per_second": "Tokens trained on per second",
    "samples_per_second": "Rows trained on per second",
    "memory_bytes": "Memory of rank 0 now: the device's, or the process's on a CPU",
    "memory_peak_bytes": "Most memory of rank 0 so far",
    "mfu": "Share of the devices' peak FLOP/s; absent on a device that is not known",
    "seconds_left": "Seconds until the last step at this speed",
    "step": "Optimizer steps done",
}
_BY_LAYER = {
    "grad_norm": ("layer_grad_norm", "Norm of a layer's gradient, clipped"),
    "update_ratio": ("update_to_weight_ratio", "Norm of an update over that of the weights"),
    "active_units": ("active_units_ratio", "Share of feed-forward units that are not dormant"),
    "effective_rank": ("effective_rank", "Effective rank of the hidden states"),
    "attention_entropy": ("attention_entropy_ratio", "Entropy of attention over that of uniform attention"),
}
_EVENTS = {"skipped": "skipped_steps", "rewind": "rewinds"}


class MetricsGauges:
    """Follows one run's metrics.jsonl."""

    def __init__(self, telemetry: Telemetry, folder: Path) -> None:
        self._telemetry, self._path = telemetry, folder / job.METRICS
        self._read = 0
        self._events = dict.fromkeys(_EVENTS.values(), 0)

    def show(self) -> None:
        """Take in the lines that are new; costs a stat when there are none."""
        with suppress(OSError):  # what cannot be shown now must not end the training
            for line in self._new_lines():
                self._take(line)

    def _new_lines(self) -> list[dict[str, Any]]:
        size = self._path.stat().st_size if self._path.exists() else 0
        if size == self._read:
            return []
        with self._path.open("rb") as file:
            if self._read:
                file.seek(self._read - 1)
                if size < self._read or file.read(1) != b"\n":  # rewritten: the training went back
                    self._read = 0
                    self._events = dict.fromkeys(_EVENTS.values(), 0)
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return job.parse_lines(whole)

    def _take(self, line: dict[str, Any]) -> None:
        gauge = self._telemetry.gauge
        for name, help in _GAUGES.items():
            if line.get(name) is not None and "event" not in line:
                gauge(name, help).set(line[name])
        if "attention" in line:
            help = "Path of the attention: varlen, flash or masked; always 1"
            gauge("attention_info", help, ("path",)).labels(line["attention"]).set(1)
        for phase, seconds in line.get("phase_seconds", {}).items():
            help = "Wall seconds of the last interval by what they went to"
            gauge("interval_seconds", help, ("phase",)).labels(phase).set(seconds)
        for genre, bits in line.get("valid_bits_per_character", {}).items():
            if bits is not None:
                help = "Validation bits per character"
                gauge("valid_bits_per_character", help, ("genre",)).labels(genre).set(bits)
        self._take_monitor(line.get("monitor", {}))
        if line.get("event") in _EVENTS:
            name = _EVENTS[line["event"]]
            self._events[name] += 1
            gauge(name, f"{name.replace('_', ' ').capitalize()} so far").set(self._events[name])

    def _take_monitor(self, figures: dict[str, Any]) -> None:
        for figure, (name, help) in _BY_LAYER.items():
            for layer, value in figures.get(figure, {}).items():
                if value is not None:
                    self._telemetry.gauge(name, help, ("layer",)).labels(layer).set(value)
        if figures.get("output_entropy") is not None:
            help = "Entropy of the predictions over that of a uniform guess"
            self._telemetry.gauge("output_entropy_ratio", help).set(figures["output_entropy"])
