"""`yanmo sweep`: from its command line to its table."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.common.shell_words import shell_line
from yanmo.common.whole_file import write_whole
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv
from yanmo.options.shared import store_flags
from yanmo.store.file_store import FileStore
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo_pipelines.processes import Processes, Stopped
from yanmo_pipelines.sweep.measuring import Chain, Sweep
from yanmo_pipelines.sweep.options import SweepOptions
from yanmo_pipelines.sweep.plan import Plan, make_plan, plan_lines
from yanmo_pipelines.sweep.settings import read_grid, read_settings
from yanmo_pipelines.sweep.summary import gravest
from yanmo_pipelines.sweep.table import as_csv, lines

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sweep that the command line describes; returns the exit code."""

    def serve() -> int:
        options = load(SweepOptions, default_argv(argv), "yanmo sweep")
        setup(options.log_level, "sweep", options.log_format)
        store, of_store = store_of(options), store_flags(options)
        grid = read_grid(options.grid)
        plan = make_plan(read_settings(options.set), grid, options.seeds, of_store)
        told = plan_lines(plan, f"channel {options.channel} of {store.uri}", _free_bytes(store))
        if options.dry_run:
            print("\n".join(told))
            return ExitCode.DONE
        for line in told:
            log.info("%s", line)
        return _make(options, store, plan, of_store)

    return ended("sweep", serve)


def _make(options: SweepOptions, store: ObjectStore, plan: Plan, of_store: Sequence[str]) -> int:
    processes = Processes()
    fixed = [f"--store={store.uri}", *of_store, f"--channel={options.channel}", "--pointer=none"]
    fixed += [f"--log-level={options.log_level}", f"--log-format={options.log_format}", "--metrics-port=-1"]
    with tempfile.TemporaryDirectory(prefix="yanmo-sweep-") as folder, processes.hear_signals():
        chain = Chain(store, fixed, Path(folder), processes)
        with closing(chain.session):
            sweep = Sweep(plan, chain, store, options.channel)
            try:
                sweep.make()
            except Stopped as stopped:
                log.warning("%s; what is finished is kept: the same command goes on", stopped)
                _show(options, store, sweep, of_store)
                return ExitCode.RETRY
            _show(options, store, sweep, of_store)
            return gravest(sweep.results)


def _show(options: SweepOptions, store: ObjectStore, sweep: Sweep, of_store: Sequence[str]) -> None:
    plan, results = sweep.plan, sweep.results
    if options.csv == "-":
        sys.stdout.write(as_csv(plan, results))
        return
    where = ["--store", options.store, *of_store]
    run_command = ["yanmo", "run", *where, "--channel", options.channel]
    print("\n".join(lines(plan, results, run_command, shell_line(["yanmo", "store", "gc", *where]))))
    if options.csv:
        write_whole(Path(options.csv), as_csv(plan, results))
        log.info("%d runs written to %s", len(results), options.csv)


def _free_bytes(store: ObjectStore) -> int | None:
    if not isinstance(store, FileStore):
        return None
    place = next((p for p in (store.root, *store.root.absolute().parents) if p.exists()), None)
    return shutil.disk_usage(place).free if place else None
