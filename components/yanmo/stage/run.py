"""From a command line to an exit code: what all stages have in common.

A stage's `__main__` calls `run(STAGE, STEPS)`. Options, tries, pauses, signals and last words are here, the
output itself (its key, lease, commit, pointers) is in making.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import signal
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from yanmo.common import waiting
from yanmo.common.answers import only_answers
from yanmo.common.command_end import as_process, process_started, stacks_on_request
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.options.command_line import load_given
from yanmo.options.fields import NONE, default_argv
from yanmo.options.shared import StageOptions
from yanmo.stage.channel_lease import Busy
from yanmo.stage.declaration import Stage
from yanmo.stage.exporter import Telemetry
from yanmo.stage.failing import failed, last_words, rerun_command, say_details, until_it_ends
from yanmo.stage.form import is_pinned, load_shared, with_pinned
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.making import finish_and_hand_over, output_of, recipe_of, run_of
from yanmo.stage.pushgateway import pushed
from yanmo.stage.results import check_pointers, hand_on, pass_on, write_results
from yanmo.stage.run_telemetry import telemetry_of
from yanmo.stage.stage_run import Ended, Finish, Made, Options, Skip, StageRun, Steps
from yanmo.store.commit import find_whole
from yanmo.store.named import PausedInput
from yanmo.store.opening import default_store, store_of
from yanmo.store.output import Pause, PausedOutput

log = logging.getLogger(__name__)
_DONE = Ended(int(ExitCode.DONE), "")


def main(
    stage: Stage,
    steps: Steps[Options, Made],
    argv: Sequence[str] | None = None,
    *,
    started: float | None = None,
) -> int:
    """Run `stage` for a command line, the process's own by default; returns the process's exit code.

    Args:
        started: when the process was started for this, by the monotonic clock; None for now.
    """
    started = time.monotonic() if started is None else started
    words = default_argv(argv)
    try:
        options: Options
        options, given = _first_read(stage, words)
    except Exception as error:
        setup("info", stage.name)
        return failed(stage, error, rerun_command(stage, words))
    setup(options.log_level, stage.name, options.log_format)
    again = rerun_command(stage, words, options)
    with telemetry_of(stage, options) as telemetry, pushed(telemetry, options):
        ending = _ended(stage, options, given, steps, started, telemetry, again, words)
        telemetry.ended(ending)
        return ending


def _first_read(stage: Stage, words: Sequence[str]) -> tuple[Any, frozenset[str]]:
    """Return the options, and which were given; those that all stages share where the store has the rest."""
    prog = f"yanmo {stage.name}"
    return (
        (load_shared(words, prog), frozenset()) if is_pinned(words) else load_given(stage.config, words, prog)
    )


def _ended(
    stage: Stage,
    options: Options,
    given: frozenset[str],
    steps: Steps[Options, Made],
    started: float,
    telemetry: Telemetry,
    again: str,
    words: Sequence[str],
) -> int:
    """Do all of `main` once the options are read; return the exit code, with its last words said."""
    try:
        outputs = ExecutorOutputs.parse(options.executor_input)
        options = with_store(options, outputs)
        tell_children(options)
        with only_answers():

            def one_try(number: int) -> Ended:
                nonlocal options, given, again
                if number > 1:
                    telemetry.begin_again()
                if is_pinned(words):
                    found = with_pinned(words, store_of(options), options)
                    options, given = load_given(stage.config, found, f"yanmo {stage.name}")
                    options = with_store(options, outputs)
                    again = rerun_command(stage, found, options)
                return _serve(stage, options, given, steps, started, outputs, telemetry, again)

            tell = functools.partial(say_details, stage=stage.name)
            ending, why = until_it_ends(one_try, options.wait_seconds, tell=tell)
        if why:
            last_words(stage, ending, why, again)
        return ending
    except KeyboardInterrupt:
        log.warning("interrupted; the same command starts it again")
        if observer := steps.observer_of(stage.name, options, started):
            observer.stopped()
        return 128 + signal.SIGINT
    except SystemExit as error:  # SIGTERM
        last_words(stage, int(error.code or 0), "asked to stop", again)
        if observer := steps.observer_of(stage.name, options, started):
            observer.stopped()
        raise
    except Exception as error:
        ending = failed(stage, error, again, options.run_id)
        said: Exception | None = None
        if steps.assist and options.is_helper():  # it may fail alone; who commits says how all ended
            return ending
        if steps.failed and isinstance(options, stage.config):
            said = steps.failed(options, error)
        if observer := steps.observer_of(stage.name, options, started):
            observer.failed(said or error, again)
        return ending


def tell_children(options: StageOptions) -> None:
    """Let raw sources and child processes look where the store does, and wait as long.

    Where the store is in KFP's own bucket and no server is named, an s3:// source lies on KFP's server too.
    """
    if options.endpoint:
        os.environ["AWS_ENDPOINT_URL_S3"] = options.endpoint
    elif options.store.startswith("minio://"):
        from yanmo.store.s3.credentials import find_endpoint

        os.environ["AWS_ENDPOINT_URL_S3"] = find_endpoint("", "minio")
    if options.wait_seconds != waiting.longest_wait():
        os.environ[waiting.VARIABLE] = f"{options.wait_seconds:g}"


def _serve(
    stage: Stage,
    options: Options,
    given: frozenset[str],
    steps: Steps[Options, Made],
    started: float,
    outputs: ExecutorOutputs | None,
    telemetry: Telemetry,
    again: str,
) -> Ended:
    """Try once what `main` does when the options are read; return the exit code, and why it is not 0."""
    store = store_of(options)
    check_pointers(stage, options, store)
    if options.take:
        hand_on(stage, options, store, outputs)
        return _DONE
    try:
        run = run_of(stage, options, steps, store, telemetry, given, started, again)
    except PausedInput as error:
        pass_on(stage, options, error.paused, steps, store, outputs)
        return _DONE
    with contextlib.closing(run.session):
        return _run(run, steps, outputs)


def with_store(options: Options, outputs: ExecutorOutputs | None) -> Options:
    """Return the options with a store: in a pipeline it may be left out.

    Raises:
        UsageError: nothing says where the store is.
    """
    if options.store:
        return options
    return dataclasses.replace(options, store=default_store(outputs.bucket if outputs else ""))


def _run(run: StageRun[Options, Made], steps: Steps[Options, Made], outputs: ExecutorOutputs | None) -> Ended:
    """Go from options and inputs by the key and the committed output to pointers and references."""
    helps = steps.assist if run.options.is_helper() else None
    try:
        if steps.settle:
            run.options = steps.settle(run)
        recipe = recipe_of(run, steps)
        if helps:
            if run.options.force or find_whole(run.store, run.stage.name, recipe.key) is None:
                return helps(run) or _DONE
            return _DONE
        output = output_of(run, recipe, steps)
    except Busy as reason:
        paused = PausedOutput.of(run.stage.name, run.key, Pause(where="its beginning", why=str(reason)))
        pass_on(run.stage, run.options, paused, steps, run.store, outputs)
        return _DONE
    except Skip as reason:
        log.info("nothing to do: %s", reason)
        if not helps:
            write_results(run.stage, run.options, NONE + "\n", Finish(), outputs, status="skipped")
        return _DONE
    if output:
        finish_and_hand_over(run, steps, output, outputs)
    else:
        run.telemetry.state("paused")
        if not run.pause.is_planned:  # asked to stop: whoever asked waits
            run.telemetry.wait_seconds = 0.0
        paused = PausedOutput.of(run.stage.name, run.key, run.pause)
        if run.observer:
            run.observer.paused(run.store, paused)
        shown = steps.show_pause(run.options, run.store, paused) if steps.show_pause else Finish()
        write_results(run.stage, run.options, paused.to_json(), shown, outputs, status="paused")
    if output or run.pause.is_planned:
        return _DONE
    return Ended(int(ExitCode.RETRY), f"{run.pause.why}, saved at {run.pause.where}")


def run(stage: Stage, steps: Steps[Options, Made]) -> NoReturn:
    """`main`, as the last line of a stage's `__main__`."""
    stacks_on_request()
    as_process(functools.partial(main, stage, steps, started=process_started()))
