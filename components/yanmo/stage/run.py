"""From a command line to a committed output: what all stages have in common.

A stage's `__main__` calls `run(STAGE, STEPS)`; everything a user sees around the work is here: options,
inputs, the look for a committed key, lease, commit, the channel's pointer, KFP's outputs, exit codes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from yanmo.common import waiting
from yanmo.common.answers import only_answers
from yanmo.common.command_end import as_process, stacks_on_request
from yanmo.common.errors import ExitCode
from yanmo.common.logs import human_seconds, setup
from yanmo.common.process_age import process_started
from yanmo.options.command_line import load_given
from yanmo.options.fields import NONE, by_kind, default_argv, option_fields
from yanmo.options.shared import StageOptions
from yanmo.options.yaml_file import dump_yaml
from yanmo.stage.channel_lease import Busy
from yanmo.stage.cost import CostMeter
from yanmo.stage.declaration import Stage
from yanmo.stage.exporter import Telemetry
from yanmo.stage.failing import (
    failed,
    last_words,
    say_details,
    show_earlier,
)
from yanmo.stage.inputs import resolve_inputs
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.pinned import is_pinned, load_shared, with_pinned
from yanmo.stage.pushgateway import pushed
from yanmo.stage.rerun import rerun_command
from yanmo.stage.results import (
    check_pointers,
    check_reference_out,
    hand_on,
    hand_over,
    pass_on,
    write_results,
)
from yanmo.stage.retries import until_it_ends
from yanmo.stage.run_telemetry import telemetry_of
from yanmo.stage.stage_run import Ended, Finish, KeyInput, Made, Options, Skip, StageRun, Steps
from yanmo.store.commit import Attempt, Recipe, Result, commit_once, find_whole
from yanmo.store.manifest import digest
from yanmo.store.named import PausedInput
from yanmo.store.opening import default_store, store_of
from yanmo.store.output import Output
from yanmo.store.pause import Pause, PausedOutput
from yanmo.store.runs.failure_card import RECORD as FAILURES
from yanmo.store.runs.failure_card import Card, forget_cards, keep_card, read_cards, to_json

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
        if steps.observer:
            steps.observer(stage.name, options, started).stopped()
        return 128 + signal.SIGINT
    except SystemExit as error:  # SIGTERM
        last_words(stage, int(error.code or 0), "asked to stop", again)
        if steps.observer:
            steps.observer(stage.name, options, started).stopped()
        raise
    except Exception as error:
        ending = failed(stage, error, again, options.run_id)
        said: Exception | None = None
        if steps.assist and options.is_helper():  # it may fail alone; who commits says how all ended
            return ending
        if steps.failed and isinstance(options, stage.config):
            said = steps.failed(options, error)
        if steps.observer:
            steps.observer(stage.name, options, started).failed(said or error, again)
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
    check_reference_out(options.reference_out)
    if options.take:
        hand_on(stage, options, store, outputs)
        return _DONE
    try:
        inputs = resolve_inputs(store, options)
    except PausedInput as error:
        pass_on(stage, options, error.paused, steps, store, outputs)
        return _DONE
    run: StageRun[Options, Made] = StageRun(
        stage=stage,
        options=options,
        store=store,
        inputs=inputs.outputs,
        left_out=inputs.left_out,
        telemetry=telemetry,
        given=given,
        started=started,
        again=again,
        observer=steps.observer(stage.name, options, started) if steps.observer else None,
    )
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
        recipe = _recipe_of(run, steps)
        if helps:
            if run.options.force or find_whole(run.store, run.stage.name, recipe.key) is None:
                return helps(run) or _DONE
            return _DONE
        output = _output_of(run, recipe, steps)
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
        _hand_over(run, steps, output, outputs)
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


def _hand_over(
    run: StageRun[Options, Made],
    steps: Steps[Options, Made],
    output: Output,
    outputs: ExecutorOutputs | None,
) -> dict[str, Output]:
    """Do what follows once the output is there, made now or before; return its parts."""
    run.is_made = True
    if run.has_failed_before:
        forget_cards(run.store, run.stage.name, run.key)
    run.telemetry.state("handing_over")
    shown = steps.finish(run, output) if steps.finish else Finish()
    parts = hand_over(run, output, shown, outputs)
    if run.observer:
        run.observer.done(run.store, output, shown.night)
    return parts


def beside(
    run: StageRun[Options, Made], steps: Steps[Options, Made], **changes: Any
) -> tuple[Output, dict[str, Output]]:
    """Make or find what the stage gives with other options, under a key of its own, while `run` hands over.

    Args:
        changes: option -> its value there, the pointer among them.

    Returns:
        The output, and its parts.

    Raises:
        Exception: whatever keeps the stage from it.
    """
    started = time.monotonic()  # of its own: else a page would count the time of `run` twice
    options = dataclasses.replace(run.options, executor_input="", reference_out="", **changes)
    inputs = resolve_inputs(run.store, options)
    other: StageRun[Options, Made] = StageRun(
        stage=run.stage,
        options=options,
        store=run.store,
        inputs=inputs.outputs,
        left_out=inputs.left_out,
        telemetry=Telemetry(run.stage.name, run.stage.metrics),  # /metrics shows what `run` is about
        given=run.given,
        started=started,
        again=run.again,
        observer=steps.observer(run.stage.name, options, started) if steps.observer else None,
    )
    other.counted = run.counted
    with contextlib.closing(other.session):
        if steps.settle:
            other.options = steps.settle(other)
        output = _output_of(other, _recipe_of(other, steps), steps)
        assert output is not None, "only a training pauses"
        parts = _hand_over(other, steps, output, None)
    run.counted = other.counted
    return output, parts


def _recipe_of(run: StageRun[Options, Made], steps: Steps[Options, Made]) -> Recipe:
    options, stage = run.options, run.stage
    unkeyed = {f.name for f in option_fields(type(options), "input") if not f.metadata["keyed"]}
    prepared = steps.prepare(run) if steps.prepare else None
    inputs: dict[str, KeyInput] = {n: v for n, v in run.inputs.items() if n not in unkeyed}
    if prepared:
        run.prepared = prepared.made
        inputs |= prepared.inputs
    recipe = Recipe(
        stage=stage.name,
        revision=stage.revision,
        semantic=by_kind(options, "semantic"),
        inputs=inputs,
        execution=by_kind(options, "execution"),
        run_id=options.run_id,
        channel=options.channel,
    )
    run.key, run.pinned = recipe.key, recipe.outputs
    run.telemetry.info(key=recipe.key[:12], model=_model_of(run), options_digest=digest(recipe.semantic)[:12])
    return recipe


def _model_of(run: StageRun[Options, Made]) -> str:
    """The key of the model that the run makes, or that it measures or judges; "" where there is none."""
    if run.stage.outputs.get(run.stage.main_output) == "Model" and run.stage.name == "train":
        return run.key[:12]
    measured = run.inputs.get("challenger")
    if measured:
        return str(measured.manifest.inputs["model"].get("key", ""))[:12]
    model = run.inputs.get("model")
    return model.manifest.key[:12] if model else ""


def _output_of(run: StageRun[Options, Made], recipe: Recipe, steps: Steps[Options, Made]) -> Output | None:
    """Return the output of the key: the committed one, else what `steps.work` makes; None where it paused."""
    if not run.options.force:
        found = find_whole(run.store, run.stage.name, recipe.key)
        if found is not None:
            log.info("%s is committed already; nothing to do", found)
            run.telemetry.add("outputs", room="stage", part=run.stage.name, result="found")
            run.telemetry.recorded = functools.partial(_record_of, found)
            return found

    def taken_up(output: Output) -> None:
        run.session.use([output, *(one for one in run.inputs.values() if one)])

    log.info("making %s/%s", run.stage.name, recipe.key[:12])
    build = functools.partial(_build, run, steps.work)
    with steps.alone(run) if steps.alone else contextlib.nullcontext():
        output = commit_once(run.store, recipe, build, force=run.options.force, taken_up=taken_up)
    if output is None:
        log.info("paused at %s (%s); run the same command to go on", run.pause.where, run.pause.why)
    else:
        made = getattr(run, "attempt", None)  # unset where we only waited for another run
        ours = made is not None and made.id == output.manifest.attempt
        result = "made" if ours else "adopted"
        run.came_by = "made" if ours else "found"
        run.telemetry.add("outputs", room="stage", part=run.stage.name, result=result)
        run.telemetry.recorded = None if ours else functools.partial(_record_of, output)
        what = "committed %s in %s" if ours else "adopted %s, made by another run or before, after %s"
        log.info(what, output, human_seconds(time.monotonic() - run.started))
    return output


def _record_of(output: Output) -> str:
    """The metrics of the run that made it; "" where it kept none, as of a model that was brought in."""
    name = "metrics.prom"
    return output.path(name).read_text(encoding="utf-8") if output.entries(name) else ""


def _build(
    run: StageRun[Options, Made], work: Callable[[StageRun[Options, Made]], Result], attempt: Attempt
) -> Result:
    """Return what the work gives back; its options, cost and metrics are recorded beside it."""
    run.attempt = attempt
    run.telemetry.state("working")
    if run.observer:
        run.observer.begins(run.store, run.key)
    resolved = by_kind(run.options, "semantic", "execution")
    attempt.write("config.yaml", dump_yaml(resolved), role="record")
    earlier = read_cards(run.store, run.stage.name, run.key)
    show_earlier(earlier)
    cost = CostMeter(run.counted)
    try:
        result = work(run)
    except Exception as error:
        card = Card.of(run.stage.name, error, run.again, run.options.run_id)
        keep_card(run.store, run.key, card, error)
        raise
    if result.pause:
        run.pause = result.pause
    run.counted = cost.show(run.telemetry)
    attempt.write("metrics.prom", run.telemetry.text(), role="record")
    if earlier:
        run.has_failed_before = True
        attempt.write(FAILURES, to_json(earlier), role="record")
    return result


def run(stage: Stage, steps: Steps[Options, Made]) -> NoReturn:
    """`main`, as the last line of a stage's `__main__`."""
    stacks_on_request()
    as_process(functools.partial(main, stage, steps, started=process_started()))
