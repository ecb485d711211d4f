"""Reads metrics.jsonl, which a training wrote (train/metrics/metrics_log.py), whatever became of it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.given_file import json_value
from yanmo.store.output import Output

log = logging.getLogger(__name__)


def training_lines(model: Output) -> list[dict[str, Any]]:
    """Return the lines of a training's record that have a step; none where it cannot be read."""
    try:
        text = model.path("metrics.jsonl").read_text(encoding="utf-8")
    except (DataError, UnicodeDecodeError) as error:
        log.warning("no record of the training: %s", error)
        return []
    return _lines_in(text)


def _lines_in(text: str) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl that have a step, without what a kill has damaged."""
    found = []
    for line in filter(str.strip, text.splitlines()):
        try:
            value = json_value(line)
        except ValueError:  # cut by a kill
            continue
        if isinstance(value, dict) and isinstance(value.get("step"), int):
            found.append(value)
    return found


def steps_cpu_seconds(lines: Iterable[Mapping[str, Any]]) -> float | None:
    """CPU time of a training's steps over all its processes and ranks; None where no line has it."""
    known = [v for line in lines if (v := finite(line.get("cpu_seconds"))) is not None]
    return known[-1] if known else None


def finite(value: Any) -> float | None:
    """Return a number that was read from JSON, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond every float
        return None
