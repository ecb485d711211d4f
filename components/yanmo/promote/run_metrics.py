"""What a verdict is in numbers: on /metrics, and the few that KFP's page "Compare runs" shows."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping
from typing import Any

from yanmo.common.errors import DataError
from yanmo.formats.genre_names import bits_metrics
from yanmo.promote.config import HELD, OUTCOMES
from yanmo.promote.gate.guards import found
from yanmo.promote.preparing import PromoteRun
from yanmo.stage.exporter import Telemetry
from yanmo.store.champion_records import last_record

log = logging.getLogger(__name__)


def run_metrics(report: Mapping[str, Any], promoted: bool) -> dict[str, float]:
    """Bits, gain, size and outcome, by names that hold the unit; without what was not measured.

    The page shows 23 characters of a name; what is behind them, the unit, would be cut.
    """
    training = report["training"]
    gain = found(report["verdict"]["gain"], "share")
    values = {
        "promoted_1_or_0": (float(promoted), 1),
        "gain_percent": (gain, 100),
        "contamination_percent": (found(report["contamination"], "share"), 100),
        "longest_copy_characters": (report["guards"].get("longest_copy"), 1),
        "parameters_millions": (found(training, "parameters"), 1e-6),
        "train_steps": (found(training, "steps"), 1),
        "train_tokens_millions": (found(training, "tokens"), 1e-6),
    }
    measured = {name: round(v * factor, 3) for name, (v, factor) in values.items() if v is not None}
    challenger = report["bits_per_character"]["columns"][0]
    genres = {genre: cell["value"] for genre, cell in challenger["rows"].items()}
    return bits_metrics(challenger["mean"]["value"], genres) | measured


def show_metrics(
    telemetry: Telemetry,
    verdict: Mapping[str, Any],
    report: Mapping[str, Any],
    *,
    promoted: bool,
    is_held: bool,
) -> None:
    """The verdict on /metrics."""
    said = HELD if is_held else verdict["outcome"]
    for outcome in (*OUTCOMES, HELD):
        telemetry.set("verdict", outcome == said, outcome=outcome)
    telemetry.set("nights_since_promotion", 0 if promoted else len(verdict["nights"]))
    for column in report["bits_per_character"]["columns"]:
        if column["id"] in ("challenger", "champion"):
            model = column["id"]
            if column["mean"]["value"] is not None:
                telemetry.set("mean_bits_per_character", column["mean"]["value"], model=model)
            for genre, cell in column["rows"].items():
                if cell["value"] is not None:
                    telemetry.set("bits_per_character", cell["value"], model=model, genre=genre)


def show_champion_since(run: PromoteRun) -> None:
    """Since when the channel has its champion, on /metrics."""
    try:
        record = last_record(run.store, run.options.channel)
    except DataError as error:  # a figure must not undo a verdict
        log.warning("since when the champion is one is not shown: %s", error)
        return
    if record:
        since = datetime.datetime.fromisoformat(record.champion_since)
        run.telemetry.set("champion_since_timestamp_seconds", since.timestamp())
