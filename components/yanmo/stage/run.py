"""From a command line to a committed output: what all stages have in common.

A stage's `__main__` calls `main(STAGE, work)`; everything a user sees around the work is here: options,
inputs, the look for a committed key, lease, commit, the channel's pointer, KFP's outputs, exit codes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from yanmo.common.answers import only_answers
from yanmo.common.command_end import as_process
from yanmo.common.errors import DataError, EnvironmentFault, ExitCode, UsageError, advice, report
from yanmo.common.logs import human_seconds, setup
from yanmo.options.command_line import load_given
from yanmo.options.fields import StageOptions, by_kind, default_argv, option_fields
from yanmo.options.yaml_file import dump_yaml
from yanmo.stage.declaration import Stage
from yanmo.stage.energy import EnergyMeter
from yanmo.stage.exporter import Telemetry
from yanmo.stage.inputs import NONE, resolve_inputs
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.session import Session
from yanmo.store.commit import (
    Attempt,
    Recipe,
    Result,
    announce,
    check_present,
    commit_once,
    find_whole,
    work_name,
)
from yanmo.store.fatal_record import FatalRecord, command_of, fatal_name, forget, keep, obeyed
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer, pointer_name
from yanmo.store.settings import StoreSettings
from yanmo.store.work_folder import WorkFolder

log = logging.getLogger(__name__)


Options = TypeVar("Options", bound=StageOptions)
"""The stage's own options."""
Made = TypeVar("Made")
"""What its `prepare` hands to `work` and `finish`."""
KeyInput = Output | Mapping[str, str] | None
"""What a key depends on: an output, or {"content_digest", "uri"}."""


@dataclasses.dataclass(kw_only=True)
class StageRun(Generic[Options, Made]):
    """What a stage's work is given."""

    stage: Stage
    options: Options
    """Resolved."""
    store: ObjectStore
    inputs: dict[str, Output | None]
    telemetry: Telemetry
    given: frozenset[str] = frozenset()
    """Options that a flag, a file or a bundle of options gave; the others are left to themselves."""
    prepared: Made = dataclasses.field(init=False)
    """What `prepare` made; there is none before it returns."""
    key: str = ""
    pinned: dict[str, Output] = dataclasses.field(default_factory=dict)
    """Outputs that this run rests on: inputs, and parts as they are made."""
    session: Session = dataclasses.field(init=False, repr=False)
    """What this process uses besides, while it lives."""
    _pinning: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)
    attempt: Attempt = dataclasses.field(init=False)
    """Where the output's files go; set when the work begins."""

    def __post_init__(self) -> None:
        self.session = Session(self.store, self.stage.name)

    def input(self, name: str) -> Output:
        """The required input `name`."""
        found = self.inputs[name]
        assert found is not None, name
        return found

    @functools.cached_property
    def work_folder(self) -> WorkFolder:
        """Work in progress of this key (checkpoints); survives a kill."""
        return WorkFolder(self.store, work_name(self.stage.name, self.key))

    def part(
        self,
        name: str,
        revision: int,
        semantic: dict[str, Any],
        inputs: Mapping[str, KeyInput],
        build: Callable[[Attempt], Result],
    ) -> Output:
        """The committed output `name` (a tokenizer, baselines), made by `build` if absent or forced."""
        recipe = Recipe(
            stage=name,
            revision=revision,
            semantic=semantic,
            inputs=dict(inputs),
            run_id=self.options.run_id,
        )
        self.session.use(list(recipe.outputs.values()))
        found = commit_once(
            self.store,
            recipe,
            build,
            force=self.options.force,
            taken_up=lambda part: self.session.use([part]),
        )
        assert found is not None
        if self.key:
            self.pin([found])
        return found

    def pin(self, parts: Sequence[Output]) -> None:
        """Let gc know that this run uses parts, which may be old and named by nobody else.

        One at a time each of the first 64 is written at once, later ones when their number has doubled, as
        the list is written whole; several are written together.
        """
        with self._pinning:
            for part in parts:
                self.pinned[f"{part.manifest.stage} {part.manifest.key[:12]}"] = part
            count = len(self.pinned)
            if count <= 64 or count & (count - 1) == 0 or len(parts) > 1:
                announce(self.store, self.stage.name, self.key, self.pinned)


@dataclasses.dataclass(frozen=True)
class Prepared(Generic[Made]):
    """What `prepare` gives back."""

    made: Made
    """For the work and for `finish`."""
    inputs: Mapping[str, KeyInput] = dataclasses.field(default_factory=dict)
    """What else the key depends on, beyond options and references."""


class Skip(Exception):
    """Raised by `prepare` when there is nothing to make (no champion yet): an orderly, empty end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finish:
    """What a stage shows when its output is there, new or old."""

    parameters: dict[str, str] = dataclasses.field(default_factory=dict)
    """Values of `Stage.parameters`."""
    artifacts: dict[str, Path] = dataclasses.field(default_factory=dict)
    """Outputs that are files (HTML) and not references."""
    references: dict[str, Output] = dataclasses.field(default_factory=dict)
    """Parts made along with the output that are not in its manifest (baselines)."""
    metadata: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Output name -> scalars for KFP's UI (Metrics)."""


@dataclasses.dataclass(frozen=True)
class Steps(Generic[Options, Made]):
    """What a stage does by itself, in the order in which it is called; see `main`."""

    work: Callable[[StageRun[Options, Made]], Result]
    settle: Callable[[StageRun[Options, Made]], Options] | None = None
    prepare: Callable[[StageRun[Options, Made]], Prepared[Made]] | None = None
    finish: Callable[[StageRun[Options, Made], Output], Finish] | None = None
    assist: Callable[[StageRun[Options, Made]], None] | None = None


def main(
    stage: Stage,
    work: Callable[[StageRun[Options, Made]], Result],
    *,
    settle: Callable[[StageRun[Options, Made]], Options] | None = None,
    prepare: Callable[[StageRun[Options, Made]], Prepared[Made]] | None = None,
    finish: Callable[[StageRun[Options, Made], Output], Finish] | None = None,
    assist: Callable[[StageRun[Options, Made]], None] | None = None,
    argv: Sequence[str] | None = None,
) -> int:
    """Run `stage` for a command line and return the process's exit code.

    Args:
        work: makes the output; called only when its key is not committed.
        settle: the options with values in the place of those that nobody gave and that inputs or machine
            decide; called before the key is made, so it must give the same for ever (auto_record.py).
        prepare: what the work needs besides its inputs, and what else the key depends on.
        finish: called with the output whether it was made now or before.
        assist: does a share of the work where RANK is above 0: without lease, output, or pointer.
        argv: the command line; the process's own by default.
    """
    started, helps = time.monotonic(), assist is not None and _is_helper()
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
        outputs = ExecutorOutputs.parse(options.executor_input)
        store = open_store(options.store, StoreSettings.of(options))
        _check_pointers(stage, options)
        fatal = _fatal_of_this_run(store, stage, options)
        if fatal is not None:
            return fatal
        with only_answers(), Telemetry(stage.name, options.run_id, options.metrics_port) as telemetry:
            inputs = resolve_inputs(store, options)
            run: StageRun[Options, Made] = StageRun(
                stage=stage, options=options, store=store, inputs=inputs, telemetry=telemetry, given=given
            )
            with contextlib.closing(run.session):
                _run(run, Steps(work, settle, prepare, finish, assist), outputs, started)
        return ExitCode.DONE
    except KeyboardInterrupt:
        log.warning("interrupted; the same command starts it again")
        return 128 + signal.SIGINT
    except Exception as error:
        code = failed(stage, error)
        if not helps:  # of several ranks it may fail alone
            _record_fatal(stage, options, code, error)
        return code


def _run(
    run: StageRun[Options, Made], steps: Steps[Options, Made], outputs: ExecutorOutputs | None, started: float
) -> None:
    """Options and inputs -> key -> committed output -> pointers and references."""
    helps = steps.assist if _is_helper() else None
    try:
        if steps.settle:
            run.options = steps.settle(run)
        recipe = _recipe_of(run, steps)
        if helps:
            if find_whole(run.store, run.stage.name, recipe.key) is None:
                helps(run)
            return
        output = _output_of(run, recipe, steps.work, started)
    except Skip as reason:
        log.info("nothing to do: %s", reason)
        if not helps:
            _hand_over(run, None, Finish(), outputs, status="done")
        return
    shown = steps.finish(run, output) if steps.finish and output else Finish()
    _hand_over(run, output, shown, outputs, status="done" if output else "paused")
    _forget_fatal(run.store, run.stage, run.options)


def _check_pointers(stage: Stage, options: StageOptions) -> None:
    """Refuse names of pointers that cannot be now, not after the work."""
    for name in (
        options.pointer or stage.name,
        *(_part_pointer(options.pointer, each) for each in stage.outputs),
    ):
        pointer_name(options.channel, name)


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
    run: StageRun[Options, Made],
    recipe: Recipe,
    work: Callable[[StageRun[Options, Made]], Result],
    started: float,
) -> Output | None:
    options, stage = run.options, run.stage
    if not options.force:
        found = find_whole(run.store, stage.name, recipe.key)
        if found is not None:
            log.info("%s is committed already; nothing to do", found)
            return found

    def build(attempt: Attempt) -> Result:
        run.attempt = attempt
        resolved = by_kind(options, "semantic", "execution")
        attempt.write("config.yaml", dump_yaml(resolved), role="record")
        energy = EnergyMeter()
        try:
            result = work(run)
        finally:
            energy.close()
        run.telemetry.gauge("duration_seconds", "Wall time of the stage").set(time.monotonic() - started)
        _show_cost(run.telemetry, energy)
        attempt.write("metrics.prom", run.telemetry.text(), role="record")
        return result

    log.info("making %s/%s", stage.name, recipe.key[:12])

    def taken_up(output: Output) -> None:
        run.session.use([output, *(one for one in run.inputs.values() if one)])

    output = commit_once(run.store, recipe, build, force=options.force, taken_up=taken_up)
    if output is None:
        log.info("paused; run the same command to go on")
    else:
        made = getattr(run, "attempt", None)  # unset where we only waited for another run
        ours = made is not None and made.id == output.manifest.attempt
        what = "committed %s in %s" if ours else "adopted %s, made by another run or before, after %s"
        log.info(what, output, human_seconds(time.monotonic() - started))
    return output


def _show_cost(telemetry: Telemetry, energy: EnergyMeter) -> None:
    """What the work took of this machine, in this process and the ended ones that it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in used)
    telemetry.gauge("cpu_seconds", "CPU time of the stage's processes").set(seconds)
    for device, joules in energy.joules().items():
        gauge = telemetry.gauge(
            "energy_joules", "Energy used by the machine's devices meanwhile", ("device",)
        )
        gauge.labels(device).set(joules)


def _hand_over(
    run: StageRun[Options, Made],
    output: Output | None,
    shown: Finish,
    outputs: ExecutorOutputs | None,
    *,
    status: str,
) -> None:
    """Move the channel's pointers and write the references that the caller asked for."""
    stage, options = run.stage, run.options
    bodies: dict[str, str | Path] = dict(shown.artifacts)
    if output is not None:
        parts = {name: output.part(name) for name in output.manifest.references} | shown.references
        for name, part in parts.items():
            bodies[name] = part.reference.to_json()
            if options.pointer != NONE:
                move_pointer(run.store, options.channel, _part_pointer(options.pointer, name), part.reference)
        bodies[stage.main_output] = output.reference.to_json()
        if options.pointer != NONE:
            name = options.pointer or stage.name
            move_pointer(run.store, options.channel, name, output.reference)
        check_present(run.store, [output, *parts.values()])  # after the pointers: see commit.announce
    if options.reference_out:
        path = Path(options.reference_out)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(output.reference.to_json() if output else NONE + "\n", encoding="utf-8")
    if outputs:
        empty = dict.fromkeys(stage.parameters, "")
        outputs.write(bodies, shown.metadata, {**empty, **shown.parameters, "status": status})


def failed(stage: Stage, error: Exception) -> int:
    """Log what went wrong and what to do; returns the exit code for it."""
    code = report(error, log)
    log.error("%s failed with exit code %d (%s)", stage.name, code, code.name.lower())
    return int(code)


def _part_pointer(pointer: str, part: str) -> str:
    """The pointer of an output other than the main one: not the channel's own where another was asked for."""
    return f"{pointer}_{part}" if pointer else part


def _fatal_record(
    stage: Stage, options: StageOptions, code: int = 0, error: BaseException | None = None
) -> FatalRecord:
    return FatalRecord(
        stage=stage.name,
        revision=stage.revision,
        run_id=options.run_id,
        command=command_of(options),
        exit_code=code,
        cause=type(error).__name__,
        message=advice(error) if error else "",
    )


def _fatal_of_this_run(store: ObjectStore, stage: Stage, options: StageOptions) -> int | None:
    """The exit code of an earlier try of this same run that no retry can mend."""
    if not options.run_id or options.force:
        return None
    this_run = functools.partial(_fatal_record, stage, options)
    return obeyed(store, fatal_name(stage.name, options.run_id), this_run)


def _record_fatal(stage: Stage, options: StageOptions, code: int, error: Exception) -> None:
    if not options.run_id or code not in (ExitCode.USAGE, ExitCode.DATA):
        return
    try:
        store = open_store(options.store, StoreSettings.of(options))
        keep(store, fatal_name(stage.name, options.run_id), _fatal_record(stage, options, code, error))
    except (OSError, UsageError, DataError, EnvironmentFault) as problem:  # maybe what ended the run
        log.debug("could not record the failure: %s", problem)


def _forget_fatal(store: ObjectStore, stage: Stage, options: StageOptions) -> None:
    """Remove what an earlier try of this run recorded; no error, as this one has ended well."""
    if not options.run_id:
        return
    try:
        forget(store, fatal_name(stage.name, options.run_id))
    except (OSError, EnvironmentFault) as problem:
        log.debug("could not remove the record of an earlier failure: %s", problem)


def run(
    stage: Stage,
    work: Callable[[StageRun[Options, Made]], Result],
    *,
    settle: Callable[[StageRun[Options, Made]], Options] | None = None,
    prepare: Callable[[StageRun[Options, Made]], Prepared[Made]] | None = None,
    finish: Callable[[StageRun[Options, Made], Output], Finish] | None = None,
    assist: Callable[[StageRun[Options, Made]], None] | None = None,
) -> NoReturn:
    """`main`, as the last line of a stage's `__main__`."""
    as_process(lambda: main(stage, work, settle=settle, prepare=prepare, finish=finish, assist=assist))
