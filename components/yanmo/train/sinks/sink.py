"""What a sink is: a place besides our own files that gets a training's figures, if it is asked for.

The place is asked what it holds already, so that a training that goes on after a kill, on this machine or
another, appends to its run there and writes no step twice. Each library is imported by the sink that needs it
alone, in a process of its own (process.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


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

    def begin(self, run: TrainingRun) -> Mapping[str, int]:
        """Open the training's run there, or go on with it; figure -> last step that it holds."""

    def forget(self, step: int) -> bool:
        """Hide what it holds of this step and later ones, which are made again; False where it cannot."""

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """Add figures of a step."""

    def flush(self) -> None:
        """Have what was written reach the place."""

    def end(self, done: bool) -> None:
        """Close the run; `done` is whether the training has ended well."""
