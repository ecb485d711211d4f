"""metrics.jsonl and the lines of progress in the log; rank 0 writes, the other ranks only call.

{"step": 120, "loss": ..., "bits_per_character": ..., "tokens_per_second": ..., ...}   an interval
{"step": 120, "valid_bits_per_character": {"mean": ..., ...}}                          a validation
{"step": 120, "curve_bits_per_character": {"mean": ..., ...}}                          a point of the curve
{"step": 120, "event": "rewind", ...}                                                  any other event
"""

from __future__ import annotations

import json
import logging
import math
import time
from pathlib import Path
from typing import Any, TextIO

from yanmo.common.logs import human_seconds
from yanmo.common.words import some_of
from yanmo.train import job
from yanmo.train.backends.engine import Engine
from yanmo.train.config import TrainConfig
from yanmo.train.data import Samples
from yanmo.train.health.watchdog import RankFigures
from yanmo.train.metrics.interval import Interval, Stopwatch
from yanmo.train.metrics.utilization import Utilization

log = logging.getLogger(__name__)
_LOG_SECONDS = 10.0
_LOGGED = (
    *("step", "loss", "bits_per_character", "perplexity", "learning_rate", "grad_norm"),
    *("tokens", "tokens_per_second", "seconds_left"),
)
"""Figures of an interval that its line in the log has too, where that is one for programs."""


class MetricsLog:
    """Writes the metrics of one run."""

    def __init__(self, options: TrainConfig, engine: Engine, samples: Samples, folder: Path) -> None:
        self._options, self._engine, self._samples = options, engine, samples
        self._path = folder / job.METRICS
        self._file: TextIO | None = None
        self.count = 0
        """Lines written so far, on rank 0."""
        self._logged_at = time.monotonic()
        decoder = engine.decoder
        self._machine = Utilization(engine.device, options, decoder.config, decoder.attention)

    def open(self, step: int, count: int | None = None) -> None:
        """Continue metrics.jsonl, without the lines of what will be made again.

        Args:
            count: lines that there were when the checkpoint of `step` was made; None where nobody knows. What
                came after it, such as a rewind to it, has the same step.
        """
        if self._engine.rank:
            return
        if self._file:
            self._file.close()
        lines = [line for line in job.read_metrics(self._path)[:count] if line["step"] <= step]
        self.count = len(lines)
        temporary = self._path.with_name(f".tmp-{self._path.name}")  # a kill in here must lose no line
        temporary.write_text("".join(map(_text, lines)), encoding="utf-8")
        temporary.replace(self._path)
        self._file = self._path.open("a", encoding="utf-8")

    def line(self, step: int, interval: Interval, watch: Stopwatch, figures: RankFigures) -> None:
        """Write the metrics of an interval; begin the next one.

        Args:
            figures: of this rank, which get its memory.
        """
        seconds = max(interval.seconds - interval.line_seconds, 1e-9)
        speed = interval.targets / seconds
        line = {
            "step": step,
            **self._of_the_loss(interval.loss),
            "learning_rate": self._engine.learning_rate,
            "grad_norm": _finite(self._engine.gradient_norm()),
            "tokens": interval.tokens,
            "tokens_per_second": speed,
            "samples_per_second": interval.samples / seconds,
            "seconds": interval.seconds,
            "cpu_seconds": interval.cpu_seconds,
            "seconds_left": interval.seconds / step * (self._options.steps - step),
            "phase_seconds": {name: round(value, 6) for name, value in watch.read().items()},
            **self._machine.figures(speed),
        }
        figures.memory_bytes, figures.memory_peak_bytes = line["memory_bytes"], line["memory_peak_bytes"]
        figures.allocator_retries = self._machine.allocator_retries()
        interval.begin_line()
        self._write(line)
        if time.monotonic() - self._logged_at >= _LOG_SECONDS or step == self._options.steps:
            self._log_line(line)

    def _of_the_loss(self, loss: float | None) -> dict[str, float | None]:
        if loss is None:
            return {"loss": None, "perplexity": None, "bits_per_character": None}
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits_per_character": loss / math.log(2) * self._samples.tokens_per_character,
        }

    def _log_line(self, line: dict[str, Any]) -> None:
        self._logged_at = time.monotonic()
        step, steps = line["step"], self._options.steps
        if line["loss"] is None:
            log.warning("step %d of %d: every step since the last line was skipped", step, steps)
            return
        log.info(
            "step %d of %d (%d %%): loss %.3f, %.3f bits per character, perplexity %s, learning rate %.3g, "
            "gradient norm %s, %.0f tokens/s, %s left",
            step,
            steps,
            100 * step // steps,
            line["loss"],
            line["bits_per_character"],
            _shown(line["perplexity"]),
            line["learning_rate"],
            _shown(line["grad_norm"]),
            line["tokens_per_second"],
            human_seconds(line["seconds_left"]),
            extra={"figures": {name: line[name] for name in _LOGGED} | {"steps": steps}},
        )

    def validation(self, step: int, found: dict[str, float]) -> None:
        """Bits per character by genre."""
        shown = {genre: _finite(bits) for genre, bits in found.items()}
        self._write({"step": step, "valid_bits_per_character": shown})
        text = some_of([f"{genre} {bits:.3f}" for genre, bits in found.items()])
        log.info("validation at step %d, bits per character: %s", step, text)

    def curve(self, step: int, found: dict[str, float]) -> None:
        """A point of the curve: bits per character by genre, of less text than a validation's."""
        shown = {genre: _finite(bits) for genre, bits in found.items()}
        self._write({"step": step, "curve_bits_per_character": shown})
        log.info("validation curve at step %d: %.3f bits per character", step, found["mean"])

    def event(self, step: int, name: str, **values: Any) -> None:
        """Something that makes this run differ from one without it."""
        self._write({"step": step, "event": name, **values})

    def monitor(self, step: int, figures: dict[str, Any]) -> None:
        """Write the metrics of the collapse monitor."""
        self._write({"step": step, "monitor": figures})

    def _write(self, line: dict[str, Any]) -> None:
        if self._file:
            self._file.write(_text(line))
            self._file.flush()
            self.count += 1


def _shown(value: float | None) -> str:
    """With three digits, or all of those before the point."""
    if value is None:
        return "not finite"
    return f"{value:.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"


def _text(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
