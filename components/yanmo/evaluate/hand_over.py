"""What the steps of an evaluation are given."""

from __future__ import annotations

from yanmo.evaluate.config import EvaluateConfig
from yanmo.stage.stage_run import StageRun

EvaluateRun = StageRun[EvaluateConfig, None]
"""`prepare` hands nothing over."""
