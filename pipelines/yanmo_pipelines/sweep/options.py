"""Options of `yanmo sweep`, apart from what does the work: `--help` needs them alone."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import opt
from yanmo.options.shared import ToolOptions, channel_opt

MOST_RUNS = 1000


@dataclass(frozen=True, kw_only=True)
class SweepOptions(ToolOptions, group="sweep"):
    """Train with several settings and seeds, measure all alike, and show which setting is best.

    Everything is checked before the first training. Data stages are run once for all settings that share
    them; what is committed already is found by its key, so that the same command goes on after any end. No
    champion and no other pointer of the channel moves. Exit code: the gravest of the runs, 75 if stopped.
    """

    channel: str = channel_opt("channel on whose evaluation set all models are measured")
    set: tuple[str, ...] = opt(
        (),
        "an option of a stage for all runs (train.steps=100); may be given many times",
        metavar="NAME=VALUE",
    )
    grid: tuple[str, ...] = opt(
        (),
        "values of an option, tried one by one (train.adam_learning_rate=0.01,0.02); of several options "
        'every combination; values with commas as a list: ["a,b", c]',
        metavar="NAME=VALUE,VALUE",
    )
    seeds: int = opt(
        1, "trainings of each setting, with train.seed and the seeds after it", least=1, most=MOST_RUNS
    )
    csv: str = opt("", "file to write the runs to as CSV, all digits; - for stdout", metavar="FILE")
    dry_run: bool = opt(False, "check everything and say what would be done")
