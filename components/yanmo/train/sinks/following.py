"""metrics.jsonl as figures for a sink: what is new, and what is made again after a return to a checkpoint."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from yanmo.train import job
from yanmo.train.sinks.sink import Sink

_OF_A_LINE = (
    *("loss", "perplexity", "bits_per_character", "learning_rate", "grad_norm", "tokens"),
    *("tokens_per_second", "samples_per_second", "mfu", "flops_per_second", "memory_bytes"),
)


def figures_of(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite figures of a line, by names such as `train/loss`; none of an event."""
    if "event" in line:
        return {}
    found: dict[str, Any] = {f"train/{name}": line.get(name) for name in _OF_A_LINE}
    found |= {f"seconds/{phase}": value for phase, value in line.get("phase_seconds", {}).items()}
    found |= {f"valid/{genre}": bits for genre, bits in line.get("valid_bits_per_character", {}).items()}
    found |= {f"curve/{genre}": bits for genre, bits in line.get("curve_bits_per_character", {}).items()}
    for figure, value in line.get("monitor", {}).items():
        by_layer = value if isinstance(value, Mapping) else {"": value}
        found |= {f"monitor/{figure}{layer and f'/{layer}'}": v for layer, v in by_layer.items()}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


class Follower:
    """Hands each figure of a training to a sink once."""

    def __init__(self, folder: Path, sink: Sink, held: Mapping[str, int]) -> None:
        """Args:
        held: figure -> last step that the sink has.
        """
        self._path, self._sink = folder / job.METRICS, sink
        self._held = held
        self._last = dict[str, int]()
        """Figure -> last step that was handed over, where that is not in `held` already."""
        self._read, self._file = 0, 0
        self._step = -1
        """Of the last line that was read."""

    def hand_over(self) -> None:
        """All that is new."""
        lines = list(self._new_lines())
        for line in lines:
            figures = figures_of(line)
            step = int(line["step"])
            new = {name: value for name, value in figures.items() if step > self._last_of(name)}
            if new:
                self._sink.write(step, new)
                self._last |= dict.fromkeys(new, step)
            self._step = step
        if lines:
            self._sink.flush()

    def _last_of(self, name: str) -> int:
        if name in self._last:
            return self._last[name]
        try:
            return self._held[name]
        except KeyError:
            return -1

    def _new_lines(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                now = os.fstat(file.fileno())
                is_other = now.st_ino != self._file or now.st_size < self._read
                data = file.read() if is_other else b""
                if not is_other:
                    file.seek(self._read)
                    data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        lines = job.parse_lines(whole)
        if is_other:  # the training begins, or has gone back: what comes after these lines is made again
            self._file, self._read = now.st_ino, 0
            self._go_back(max((int(line["step"]) for line in lines), default=-1))
        self._read += len(whole)
        yield from lines

    def _go_back(self, step: int) -> None:
        """Have the sink forget what comes after a step, if it holds that, and can."""
        known = {**self._held, **self._last}
        if any(last > step for last in known.values()) and self._sink.forget(step + 1):
            self._held = {}
            self._last = {name: min(last, step) for name, last in known.items()}
