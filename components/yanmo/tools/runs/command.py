"""The command line of `yanmo runs`.

A command of its own, not one of `yanmo store`: it asks which change helped, not how a store is kept.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.common.whole_file import write_whole
from yanmo.common.words import plural
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt
from yanmo.options.shared import ToolOptions
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunsOptions(ToolOptions, group="runs"):
    """Compare the runs of a channel or of a whole store: each model, what differs, bits, cost.

    One line a model: the options of train, tokenize, balance and curate that differ between the
    models shown, bits per character on one evaluation set, cost, size, and whether it is or was
    champion. Reads manifests and small records only.
    """

    channel: str = opt(
        "",
        "only the runs of this channel, measured on its evaluation set; default: "
        "YANMO_CHANNEL, else all runs of the store",
        variable="YANMO_CHANNEL",
    )
    sort: str = opt(
        "made",
        "made (newest first), mean or a genre (fewest bits first), wall, cpu, gpu_hours, tokens, parameters, "
        "or an option such as train.seed",
    )
    last: int = opt(0, "how many of the newest runs; 0 for all", least=0)
    csv: str = opt(
        "", "file to write the table to as CSV, all digits and intervals; - for stdout", metavar="FILE"
    )
    json: bool = opt(False, "for scripts: one JSON document with all options of all runs")

    def contradictions(self) -> list[str]:
        both = self.json and self.csv == "-"
        return ["--json and --csv - both write to stdout: give one of them, or a file"] if both else []


def compare(store: ObjectStore, options: RunsOptions) -> int:
    """Gather the runs and show them; what is damaged or lost is shown as such and does not end it."""
    # Here and not above: `--help` needs none of them, nor what reads metrics.
    from yanmo.tools.runs.export import as_csv, as_json
    from yanmo.tools.runs.gather import gather
    from yanmo.tools.runs.order import ordered
    from yanmo.tools.runs.table import lines

    found = gather(store, options.channel, options.last)
    found.runs = ordered(found, options.sort)
    if options.csv and options.csv != "-":
        write_whole(Path(options.csv), as_csv(found))
        log.info("%s written to %s", plural(len(found.runs), "run"), options.csv)
    if options.csv == "-":
        sys.stdout.write(as_csv(found))
    elif options.json:
        print(as_json(found))
    else:
        print("\n".join(lines(found)))
    return ExitCode.DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Compare runs and return the process's exit code."""

    def serve() -> int:
        options = load(RunsOptions, default_argv(argv), "yanmo runs")
        setup(options.log_level, "runs", options.log_format)
        return compare(store_of(options), options)

    return ended("runs", serve)


def run() -> NoReturn:
    """`main` as a process."""
    as_process(functools.partial(main))
