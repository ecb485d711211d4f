"""What a sink is: a place besides our own files that gets a training's figures, if it is asked for.

The place is asked what it holds already, so that a training that goes on after a kill, on this machine or
another, appends to its run there and writes no step twice: what is made again after a return to a checkpoint
stays as it was. Each library is imported by the sink that needs it alone, in a process of its own
(process.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from yanmo.train import job

_OF_A_LINE = (
    *("loss", "perplexity", "bits_per_character", "learning_rate", "grad_norm", "tokens"),
    *("tokens_per_second", "samples_per_second", "mfu", "flops_per_second", "memory_bytes"),
)


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """Whose figures they are."""

    key: str
    """Of the model: the same however often the training is started."""
    run_id: str
    """Of the pipeline run; "" without one."""
    channel: str
    options: Mapping[str, Any]
    """As they were resolved."""

    @property
    def name(self) -> str:
        """As logs show it, without a slash."""
        return f"train-{self.key[:12]}"


class Sink(Protocol):
    """One place. Whatever its methods raise, the training goes on, and it is tried again later."""

    def begin(self, run: TrainingRun) -> defaultdict[str, int]:
        """Open the training's run there, or go on with it; figure -> last step that it holds, -1 for none."""

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """Add figures of a step."""

    def flush(self) -> None:
        """Have what was written reach the place."""

    def end(self, done: bool) -> None:
        """Close the run; `done` is whether the training has ended well."""


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

    def __init__(self, folder: Path, sink: Sink, run: TrainingRun) -> None:
        self._lines, self._sink = job.NewLines(folder / job.METRICS), sink
        self._last = sink.begin(run)

    def hand_over(self) -> None:
        """All that is new."""
        lines = self._lines.read()
        for line in lines:
            step = int(line["step"])
            new = {name: value for name, value in figures_of(line).items() if step > self._last[name]}
            if new:
                self._sink.write(step, new)
                self._last |= dict.fromkeys(new, step)
        if lines:
            self._sink.flush()
