"""The command line of `yanmo runs`.

A command of its own, not one of `yanmo store`: it asks which change helped, not how a store is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt
from yanmo.options.shared import ToolOptions
from yanmo.store.opening import store_of


@dataclass(frozen=True, kw_only=True)
class RunsOptions(ToolOptions, group="runs"):
    """Compare the runs of a channel or of a whole store: each model, what differs, bits, time.

    One line a model: the options of train, tokenize, balance and curate that differ between the
    models shown, bits per character on one evaluation set, the time of the training by the clock, its
    tokens, and whether it is or was champion. Reads manifests and small records only.
    """

    channel: str = opt(
        "",
        "only the runs of this channel, measured on its evaluation set; default: "
        "YANMO_CHANNEL, else all runs of the store",
        variable="YANMO_CHANNEL",
    )
    sort: str = opt("made", "made: newest first; mean: fewest bits first", choices=("made", "mean"))
    last: int = opt(0, "how many of the newest runs; 0 for all", least=0)
    json: bool = opt(False, "for scripts: one JSON document with all options of all runs")


def main(argv: Sequence[str] | None = None) -> int:
    """Compare runs and return the process's exit code."""

    def serve() -> int:
        options = load(RunsOptions, default_argv(argv), "yanmo runs")
        setup(options.log_level, "runs", options.log_format)
        # Here and not above: `--help` needs neither, nor what reads metrics.
        from yanmo.tools.runs.gather import gather
        from yanmo.tools.runs.table import as_json, lines

        found = gather(store_of(options), options.channel, options.last)
        if options.sort == "mean":
            found.runs.sort(key=lambda run: run.evaluation.mean.value if run.evaluation else float("inf"))
        print(as_json(found) if options.json else "\n".join(lines(found)))
        return ExitCode.DONE

    return ended("runs", serve)
