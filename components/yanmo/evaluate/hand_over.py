"""What the steps of an evaluation hand to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from yanmo.evaluate.config import EvaluateConfig
from yanmo.stage.stage_run import StageRun

if TYPE_CHECKING:  # a run that finds its key committed must not wait for torch
    from yanmo.evaluate.bits.pieces import KeptPieces


@dataclass
class Handed:
    """From `work` to `finish`."""

    pieces: KeptPieces | None = None
    """What is cleared once the output is committed; None where it was committed before."""


EvaluateRun = StageRun[EvaluateConfig, Handed]
