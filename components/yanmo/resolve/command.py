"""The command line of `yanmo resolve`: write references for KFP, or print them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Sequence

from yanmo.common.answers import answer, only_answers
from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.nights.observer import NightObserver, zone_of_night
from yanmo.options.command_line import load
from yanmo.options.fields import NONE, default_argv
from yanmo.resolve.config import STAGE, ResolveOptions
from yanmo.resolve.finishing import note_the_run, training_to_finish
from yanmo.resolve.references import inputs_json, resolve
from yanmo.stage.failing import failed, rerun_command, until_it_ends
from yanmo.stage.form import WholeRun, read_form
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.options_line import options_line
from yanmo.stage.run import tell_children, with_store
from yanmo.stage.run_telemetry import telemetry_of
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo.store.runs.run_record import pin_for_run

LAST = "promote"
"""The stage that ends a schedule's run."""


def main(argv: Sequence[str] | None = None) -> int:
    """Resolve the channel's pointers; returns the exit code."""

    def serve() -> int:
        options, words, started = None, default_argv(argv), time.monotonic()
        try:
            options = _with_channel(load(ResolveOptions, words, "yanmo resolve"))
            setup(options.log_level, STAGE.name, options.log_format)
            with telemetry_of(STAGE, options) as telemetry:
                telemetry.state("working")
                until_it_ends(functools.partial(_resolve, options, started), options.wait_seconds)
                telemetry.ended(ExitCode.DONE)
        except (OSError, ValueError, RuntimeError) as error:
            if options is not None:
                _tell_failure(options, started, error)
            return failed(STAGE, error, rerun_command(STAGE, words, options))
        return ExitCode.DONE

    return ended(STAGE.name, serve)


def _resolve(options: ResolveOptions, started: float, number: int) -> None:
    outputs = _outputs(options)
    options = with_store(options, outputs)
    tell_children(options)
    with only_answers():
        store = store_of(options)
        line = options_line(options.others)
        run = read_form(STAGE, options.stages, options.form, options.defaults, line)
        options = _with_own(options, run)
        finishing, left = training_to_finish(store, options, run) if outputs else (None, [])
        references = resolve(store, options, run.options.get("tokenize"), finishing)
        _begin_night(store, options, run, started)
        line = (finishing.run if finishing else run).line(but=STAGE.name)
        if outputs and options.run_id:
            pin_for_run(store, options.channel, options.run_id, line, references)
            note_the_run(store, options, run, finishing, left)
    if outputs:
        training = f"finish {finishing.training.name}" if finishing else "new"
        named = ", ".join(f"{n}: {f'{r.stage}/{r.key[:12]}' if r else NONE}" for n, r in references.items())
        outputs.write({}, {}, {"options": line, "pinned": named, "training": training, **options.pods})
    else:
        answer(inputs_json(references))


def _begin_night(store: ObjectStore, options: ResolveOptions, run: WholeRun, started: float) -> None:
    """Show that a night has begun."""
    zone, last = zone_of_night(run.options.get("train")), list(run.options)[-1]
    NightObserver(STAGE.name, options, started, zone, last).opens(store)


def _tell_failure(options: ResolveOptions, started: float, error: Exception) -> None:
    """Show that a night has failed at its begin."""
    with contextlib.suppress(UsageError):
        # a schedule's wrong value is nobody's typo of now
        last = "" if "resolve.schedule=" not in options.others else LAST
        observed = with_store(options, _outputs(options))
        NightObserver(STAGE.name, observed, started, last=last).failed(error, "")


def _with_channel(options: ResolveOptions) -> ResolveOptions:
    """Return the options with the channel, which may be on the form alone: metrics name it too."""
    said = (each.partition("=")[2] for each in options.form if each.startswith("resolve.channel="))
    return dataclasses.replace(options, channel=next(said, "").strip() or options.channel)


def _outputs(options: ResolveOptions) -> ExecutorOutputs | None:
    return ExecutorOutputs.parse(options.executor_input)


def _with_own(options: ResolveOptions, run: WholeRun) -> ResolveOptions:
    """Return the options with what the form and the line say of this task itself."""
    said = {name: getattr(run.options[STAGE.name], name) for name in run.settings[STAGE.name]}
    return dataclasses.replace(options, **said)
