"""The output of one run of a stage: found by its key, else made, committed and handed over.

`run.py` calls this between the command line and the exit code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable
from typing import Any

from yanmo.common.logs import human_seconds
from yanmo.options.fields import by_kind, option_fields
from yanmo.options.yaml_file import dump_yaml
from yanmo.stage.declaration import Stage
from yanmo.stage.exporter import Telemetry
from yanmo.stage.failing import show_earlier
from yanmo.stage.inputs import resolve_inputs
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.results import hand_over
from yanmo.stage.run_telemetry import CostMeter
from yanmo.stage.stage_run import Finish, KeyInput, Made, Options, StageRun, Steps
from yanmo.store.commit import Attempt, Recipe, Result, commit_once, find_whole
from yanmo.store.manifest import digest
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.runs.failure_card import Card, forget_card, keep_card, read_card

log = logging.getLogger(__name__)


def run_of(
    stage: Stage,
    options: Options,
    steps: Steps[Options, Made],
    store: ObjectStore,
    telemetry: Telemetry,
    given: frozenset[str],
    started: float,
    again: str,
) -> StageRun[Options, Made]:
    """Return the run of a stage with these options, with its inputs opened.

    Raises:
        PausedInput: the stage that makes one of them paused.
        DataError: a required input is not to be had; says what to run.
    """
    return StageRun(
        stage=stage,
        options=options,
        store=store,
        inputs=resolve_inputs(store, options),
        telemetry=telemetry,
        given=given,
        started=started,
        again=again,
        observer=steps.observer_of(stage.name, options, started),
    )


def recipe_of(run: StageRun[Options, Made], steps: Steps[Options, Made]) -> Recipe:
    """Return what the output is made from, which is its key; calls `steps.prepare`."""
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


def output_of(run: StageRun[Options, Made], recipe: Recipe, steps: Steps[Options, Made]) -> Output | None:
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
    earlier = read_card(run.store, run.stage.name, run.key)
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
    run.has_failed_before = bool(earlier)
    return result


def finish_and_hand_over(
    run: StageRun[Options, Made],
    steps: Steps[Options, Made],
    output: Output,
    outputs: ExecutorOutputs | None,
) -> dict[str, Output]:
    """Do what follows once the output is there, made now or before; return its parts."""
    run.is_made = True
    if run.has_failed_before:
        forget_card(run.store, run.stage.name, run.key)
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
    options = dataclasses.replace(run.options, executor_input="", **changes)
    telemetry = Telemetry(run.stage.name, run.stage.metrics)  # /metrics shows what `run` is about
    started = time.monotonic()  # of its own: else a page would count the time of `run` twice
    other = run_of(run.stage, options, steps, run.store, telemetry, run.given, started, run.again)
    other.counted = run.counted
    with contextlib.closing(other.session):
        if steps.settle:
            other.options = steps.settle(other)
        output = output_of(other, recipe_of(other, steps), steps)
        assert output is not None, "only a training pauses"
        parts = finish_and_hand_over(other, steps, output, None)
    run.counted = other.counted
    return output, parts
