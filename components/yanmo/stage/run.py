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
from pathlib import Path
from typing import NoReturn

from yanmo.common.answers import only_answers
from yanmo.common.command_end import as_process
from yanmo.common.errors import ExitCode, UsageError, in_words
from yanmo.common.logs import human_seconds, setup
from yanmo.common.whole_file import write_whole
from yanmo.options.command_line import load_given
from yanmo.options.fields import NONE, StageOptions, by_kind, default_argv, option_fields
from yanmo.options.yaml_file import dump_yaml
from yanmo.stage.cost import CostMeter, process_started
from yanmo.stage.declaration import Stage
from yanmo.stage.exporter import Telemetry
from yanmo.stage.failing import failed, fatal_of_this_run, forget_fatal, record_fatal
from yanmo.stage.inputs import PausedInput, resolve_inputs
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.stage_run import Finish, KeyInput, Made, Options, Skip, StageRun, Steps
from yanmo.store.commit import Attempt, Recipe, Result, commit_once, find_whole
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import default_store, store_of
from yanmo.store.output import Output
from yanmo.store.pause import PausedOutput
from yanmo.store.pointers import move_pointer, pointer_name
from yanmo.store.runs.in_use import check_present

log = logging.getLogger(__name__)


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
    try:
        options: Options
        options, given = load_given(stage.config, default_argv(argv), f"yanmo {stage.name}")
    except Exception as error:
        setup("info", stage.name)
        return failed(stage, error)
    setup(options.log_level, stage.name)
    if options.endpoint:  # raw sources and child processes look where the store does
        os.environ["AWS_ENDPOINT_URL_S3"] = options.endpoint
    try:
        return _serve(stage, options, given, steps, started)
    except KeyboardInterrupt:
        log.warning("interrupted; the same command starts it again")
        return 128 + signal.SIGINT
    except Exception as error:
        code = failed(stage, error)
        if not (steps.assist and _is_helper()):  # of several ranks it may fail alone
            record_fatal(stage, options, code, error)
        return code


def _serve(
    stage: Stage, options: Options, given: frozenset[str], steps: Steps[Options, Made], started: float
) -> int:
    """What `main` does once the options are read."""
    outputs = ExecutorOutputs.parse(options.executor_input)
    options = with_store(options, outputs)
    store = store_of(options)
    _check_pointers(stage, options)
    _check_reference_out(options.reference_out)
    fatal = fatal_of_this_run(store, stage, options)
    if fatal is not None:
        return fatal
    with only_answers(), Telemetry(stage.name, options.run_id, options.metrics_port) as telemetry:
        try:
            inputs = resolve_inputs(store, options)
        except PausedInput as error:
            _pass_on(stage, options, error.paused, steps, store, outputs)
            return ExitCode.DONE
        run: StageRun[Options, Made] = StageRun(
            stage=stage,
            options=options,
            store=store,
            inputs=inputs,
            telemetry=telemetry,
            given=given,
            started=started,
        )
        with contextlib.closing(run.session):
            return _run(run, steps, outputs)


def with_store(options: Options, outputs: ExecutorOutputs | None) -> Options:
    """The options with a store: in a pipeline it may be left out.

    Raises:
        UsageError: nothing says where the store is.
    """
    if options.store:
        return options
    return dataclasses.replace(options, store=default_store(outputs.bucket if outputs else ""))


def _run(
    run: StageRun[Options, Made], steps: Steps[Options, Made], outputs: ExecutorOutputs | None
) -> ExitCode:
    """Options and inputs -> key -> committed output -> pointers and references."""
    helps = steps.assist if _is_helper() else None
    try:
        if steps.settle:
            run.options = steps.settle(run)
        recipe = _recipe_of(run, steps)
        if helps:
            if find_whole(run.store, run.stage.name, recipe.key) is None:
                helps(run)
            return ExitCode.DONE
        output = _output_of(run, recipe, steps.work)
    except Skip as reason:
        log.info("nothing to do: %s", reason)
        if not helps:
            _write_results(run.stage, run.options, NONE + "\n", Finish(), outputs)
        return ExitCode.DONE
    if output:
        run.is_made = True
        _hand_over(run, output, steps.finish(run, output) if steps.finish else Finish(), outputs)
    else:
        paused = PausedOutput.of(run.stage.name, run.key, run.pause)
        _write_results(run.stage, run.options, paused.to_json(), Finish(), outputs, status="paused")
    forget_fatal(run.store, run.stage, run.options)
    return ExitCode.DONE if output or run.pause.is_planned else ExitCode.RETRY


def _pass_on(
    stage: Stage,
    options: Options,
    paused: PausedOutput,
    steps: Steps[Options, Made],
    store: ObjectStore,
    outputs: ExecutorOutputs | None,
) -> None:
    """End well, with the pause in the place of an output: no key is committed, no pointer moved."""
    log.info("nothing to do: %s", paused)
    shown = steps.show_pause(options, store, paused) if steps.show_pause else Finish()
    _write_results(stage, options, paused.to_json(), shown, outputs, status="paused")


def _check_pointers(stage: Stage, options: StageOptions) -> None:
    """Refuse names of pointers that cannot be now, not after the work."""
    for name in (
        options.pointer or stage.name,
        *(_part_pointer(options.pointer, each) for each in stage.outputs),
    ):
        pointer_name(options.channel, name)


def _check_reference_out(name: str) -> None:
    """Refuse what cannot be written now, not after the work.

    Raises:
        UsageError: it is a folder, below a file, or this user may not write it.
    """
    if not name:
        return
    path = Path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        why = "it is a folder" if path.is_dir() else ""
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            why = f"user {os.geteuid()} may not write there"
    except (OSError, ValueError) as error:
        why = in_words(error)
    if why:
        raise UsageError(f"--reference-out {name}: expected a file that can be written: {why}; name another")


def _is_helper() -> bool:
    """Whether this process is one of several ranks and not the first: it hands nothing over."""
    return os.environ.get("RANK", "0") not in ("", "0")


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
    )
    run.key, run.pinned = recipe.key, recipe.outputs
    return recipe


def _output_of(
    run: StageRun[Options, Made], recipe: Recipe, work: Callable[[StageRun[Options, Made]], Result]
) -> Output | None:
    """The output of the key: the committed one, else what `work` makes; None where it paused."""
    if not run.options.force:
        found = find_whole(run.store, run.stage.name, recipe.key)
        if found is not None:
            log.info("%s is committed already; nothing to do", found)
            return found

    def taken_up(output: Output) -> None:
        run.session.use([output, *(one for one in run.inputs.values() if one)])

    log.info("making %s/%s", run.stage.name, recipe.key[:12])
    build = functools.partial(_build, run, work)
    output = commit_once(run.store, recipe, build, force=run.options.force, taken_up=taken_up)
    if output is None:
        log.info("paused at %s (%s); run the same command to go on", run.pause.where, run.pause.why)
    else:
        made = getattr(run, "attempt", None)  # unset where we only waited for another run
        ours = made is not None and made.id == output.manifest.attempt
        what = "committed %s in %s" if ours else "adopted %s, made by another run or before, after %s"
        log.info(what, output, human_seconds(time.monotonic() - run.started))
    return output


def _build(
    run: StageRun[Options, Made], work: Callable[[StageRun[Options, Made]], Result], attempt: Attempt
) -> Result:
    """What the work gives back; its options, cost and metrics are recorded beside it."""
    run.attempt = attempt
    resolved = by_kind(run.options, "semantic", "execution")
    attempt.write("config.yaml", dump_yaml(resolved), role="record")
    cost = CostMeter(run.counted)
    try:
        result = work(run)
    finally:
        cost.close()
    if result.pause:
        run.pause = result.pause
    run.counted = cost.show(run.telemetry)
    attempt.write("metrics.prom", run.telemetry.text(), role="record")
    return result


def _hand_over(
    run: StageRun[Options, Made], output: Output, shown: Finish, outputs: ExecutorOutputs | None
) -> None:
    """Move the channel's pointers and write the references that the caller asked for."""
    stage, options = run.stage, run.options
    parts = {name: output.part(name) for name in output.manifest.references} | shown.references
    if options.pointer != NONE:
        for name, part in parts.items():
            move_pointer(run.store, options.channel, _part_pointer(options.pointer, name), part.reference)
        move_pointer(run.store, options.channel, options.pointer or stage.name, output.reference)
    check_present(run.store, [output, *parts.values()])  # after the pointers: see in_use.announce
    bodies = {name: part.reference.to_json() for name, part in parts.items()}
    shown = dataclasses.replace(shown, artifacts={**shown.artifacts, **bodies})
    _write_results(stage, options, output.reference.to_json(), shown, outputs)


def _write_results(
    stage: Stage,
    options: StageOptions,
    main_output: str,
    shown: Finish,
    outputs: ExecutorOutputs | None,
    *,
    status: str = "done",
) -> None:
    """Write what stands for the main output, and what else is shown, to where the caller asked for it."""
    if options.reference_out:
        path = Path(options.reference_out)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, main_output)
    if outputs:
        empty = dict.fromkeys(stage.parameters, "")
        bodies = {**shown.artifacts, stage.main_output: main_output}
        outputs.write(bodies, shown.metadata, {**empty, **shown.parameters, "status": status})


def _part_pointer(pointer: str, part: str) -> str:
    """The pointer of an output other than the main one: not the channel's own where another was asked for."""
    return f"{pointer}_{part}" if pointer else part


def run(stage: Stage, steps: Steps[Options, Made]) -> NoReturn:
    """`main`, as the last line of a stage's `__main__`."""
    as_process(functools.partial(main, stage, steps, started=process_started()))
