"""`yanmo launch`: the stage, and `yanmo launch reap`."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from yanmo.common.answers import answer
from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.nights.observer import NightObserver
from yanmo.options.command_line import load, load_given
from yanmo.options.fields import default_argv
from yanmo.stage.inputs import resolve_inputs
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.run import main as stage_main
from yanmo.stage.run import with_store
from yanmo.stage.run_telemetry import telemetry_of
from yanmo.stage.stage_run import StageRun, Steps
from yanmo.store.commit import Recipe
from yanmo.store.opening import store_of
from yanmo_pipelines.cluster.launch.made_by import maker_of
from yanmo_pipelines.cluster.launch.reap import reap
from yanmo_pipelines.cluster.launch.training import LaunchRun, prepare, training_of
from yanmo_pipelines.cluster.launch.work import api_of, show_pause, work
from yanmo_pipelines.launch_options import STAGE, LaunchOptions


def main(argv: Sequence[str] | None = None, *, started: float | None = None) -> int:
    """Launch what the command line describes and follow it, or delete what cancelled runs left."""
    words = list(default_argv(argv))
    if words[:1] == ["reap"]:
        return reap(words[1:])
    if _is_dry_run(words):
        return ended(STAGE.name, lambda: _dry_run(words))
    steps = Steps(work, prepare=prepare, show_pause=show_pause, observer=NightObserver)
    return stage_main(STAGE, steps, words, started=started)


def _is_dry_run(words: Sequence[str]) -> bool:
    """Return whether nothing may be made, by a flag, a line of options or the file."""
    try:
        return load(LaunchOptions, words, "yanmo launch").dry_run
    except UsageError:  # said where it is read again
        return "--dry-run" in words


def _dry_run(words: Sequence[str]) -> int:
    """Print what would be made; reads the store and asks the cluster, and changes neither."""
    options: LaunchOptions
    options, given = load_given(LaunchOptions, words, "yanmo launch")
    setup(options.log_level, STAGE.name, options.log_format)
    options = with_store(options, ExecutorOutputs.parse(options.executor_input))
    store = store_of(options)
    inputs = resolve_inputs(store, options)
    with telemetry_of(STAGE, options) as telemetry:
        run: LaunchRun = StageRun(
            stage=STAGE, options=options, store=store, inputs=inputs, telemetry=telemetry, given=given
        )
        prepared = prepare(run)
        run.prepared = prepared.made
        made_from = {**inputs, **prepared.inputs}
        run.key = Recipe(stage=STAGE.name, revision=STAGE.revision, semantic={}, inputs=made_from).key
        training = training_of(run)
        objects = maker_of(api_of(options), training, options.by).objects(training)
    answer(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, width=110).rstrip("\n"))
    return ExitCode.DONE
