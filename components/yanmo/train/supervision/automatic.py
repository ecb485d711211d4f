"""What options that were left open become, before the key is made: precision, device, ranks ...; the steps.

On a CPU they are one rank under torch alone, with a thread for each CPU that it may use, or one thread each
of so many ranks as were given, under DeepSpeed. On GPUs they are bf16 where it is native, else fp16 with
loss scaling, one rank per GPU, under DeepSpeed where they are several, variable-length flash attention where
it runs, and compiled layers where there is a compiler.

The precision is part of the key, so the choice of the first machine is recorded under the given options and
inputs (store/runs/auto_record.py); later runs with the same ones, on any machine, use the record. It holds
only facts: the precision in the key, the machine's CPUs and GPUs. All else follows from these and the other
options at each start, so an option outside of the key (`--micro-batch`, `--zero-stage`) changes nothing
for a run without it. A machine that cannot do what it was asked for records nothing.

Options of the length are in no key: what they make of the others is. So are the steps of a small text where
nobody gives any. Two readings were the best of those measured: trainings of 1, 2, 4 and 8.15 readings of 183
notes (0.19 M tokens, size tiny) ended at 3.49, 3.21, 3.41 and 4.17 bits per character of text that they had
not seen. Muennighoff et al. ("Scaling Data-Constrained Language Models", arXiv 2305.16264) find up to 4
readings nearly as good as new text, with models of a size that fits the text; tiny has 23 parameters for each
token here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from yanmo.common.errors import DataError, EnvironmentFault
from yanmo.common.words import plural
from yanmo.model.flash_limits import half_precision, prefers_cudnn
from yanmo.options.fields import AUTO, by_kind, flag, names_of, spelled
from yanmo.store.commit import Recipe
from yanmo.store.runs.auto_record import AUTO_RECORD, AutoRecord, record_name
from yanmo.train.backends.hardware import Machine, gpu_files, this_machine
from yanmo.train.config import TrainConfig
from yanmo.train.options.machine_options import (
    PRECISIONS,
    fitting_ranks,
    left_backend,
    left_threads,
    rows_of_a_node,
)
from yanmo.train.schedule import ContinuedOptions, ScheduleOptions
from yanmo.train.supervision.machine_check import (
    LEFT,
    Look,
    TrainRun,
    can_compile,
    go_on,
    head_width,
    lacks_deepspeed,
    off_the_gpu,
    plain_attention,
    problem_of,
    unfit_for_varlen,
)

log = logging.getLogger(__name__)
RATES = ("muon_learning_rate", "adam_learning_rate", "head_learning_rate", "norm_learning_rate")
READINGS, LEAST_STEPS = 2, 50
"""How often a text is read, at most, where nobody gives the steps; and the steps that it has in any case."""
_DIGITS = 12


def settle(run: TrainRun, look: Look = this_machine) -> TrainConfig:
    """Return the options, with values for those left to the machine.

    Args:
        look: returns what this machine has; called only where no record is found.

    Raises:
        DataError: the record is damaged.
        EnvironmentFault: the values contradict a given option, or this machine is the first and cannot do it;
            nothing is recorded then.
    """
    goes_on = run.inputs["model"] is not None
    run.options = with_length(
        run.options,
        run.given,
        goes_on=goes_on,
        tokens_of_the_text=lambda: sum(run.input("token_cache").manifest.counts["tokens"]["train"].values()),
        rows_of_an_epoch=functools.partial(_rows_of_an_epoch, run),
    )
    options = _settled(run, look)
    if lacks_deepspeed(options) and "backend" not in run.given:
        with contextlib.suppress(ValueError):  # what was given needs DeepSpeed: `check_machine` says so
            return dataclasses.replace(options, backend="torch")
    return options


def _rows_of_an_epoch(run: TrainRun) -> int:
    """Return the rows of the training text; numpy is imported where they are counted."""
    from yanmo.formats.token_cache import TokenCache
    from yanmo.train.data import Samples

    options, cache = run.options, TokenCache.open(run.input("token_cache"))
    plan, share, pad = options.packing_plan, options.tag_share, cache.special.pad
    return len(Samples(cache, packing=plan, seed=options.seed, tag_share=share, pad=pad).plan(0))


def _settled(run: TrainRun, look: Look) -> TrainConfig:
    options: TrainConfig = run.options
    left = [name for name in LEFT if name not in run.given]
    if "device" in run.given and options.device != "cuda":
        left = [name for name in left if name == "threads"]  # the others are the defaults, on every machine
    if not left:
        return options
    if options.benchmark:  # it tries compiling itself, and another precision needs another attention
        tried = [name for name in left if name not in ("compile", "attention")]
        return _with(run, tried, decide(run, look()))
    name = record_name(run.stage.name, _digest(run, left))
    found = AUTO_RECORD.read(run.store, name)
    if found is not None:
        values = _as_recorded(run, left, found, name)
        log.info("auto: %s, as recorded in %s/%s", _shown(values, left), run.store.uri, name)
        if "device" in left and values["device"] == "cpu" and gpu_files():
            log.info("a GPU may be here: --device cuda makes a training of its own")
        return _with(run, left, values)
    machine = look()
    values = decide(run, machine)
    settled = _with(run, left, values)
    problem = problem_of(run, settled, machine)
    if problem and "precision" in left:
        raise EnvironmentFault(problem)
    if problem:  # the key follows from what was given; if there is no output, the work reports the problem
        return settled
    record = AutoRecord(
        stage=run.stage.name,
        key=_recipe(run, {"precision": values["precision"]}).key,
        options={"precision": values["precision"]},
        machine=machine.facts(),
        run_id=options.run_id,
    )
    first = AUTO_RECORD.create(run.store, name, record)
    who = f"decided here ({machine})" if first == record else "decided by another machine just now"
    values = values if first == record else _as_recorded(run, left, first, name)
    log.info("auto: %s, %s, kept in %s/%s", _shown(values, left), who, run.store.uri, name)
    return _with(run, left, values)


def decide(run: TrainRun, machine: Machine, precision: str = "") -> dict[str, Any]:
    """Return what the options become on a machine, in addition to those that were given.

    Of the given options only those that these depend on are read: a wrong `--ranks` is not found here.

    Args:
        machine: the one on which the training was first started.
        precision: the recorded one; "" decides it too.
    """
    options: TrainConfig = run.options
    on_gpu = options.device == "cuda" if "device" in run.given else machine.gpus > 0
    most = max(machine.gpus, 1)
    if "precision" in run.given:
        precision = options.precision
    elif not precision:
        precision = half_precision(machine.capability) if on_gpu and machine.gpus else "fp32"
    attention = AUTO
    if on_gpu:
        attention = _attention(run, precision, machine)
    is_plain = options.zero_stage < 3 and options.offload == "none" and not options.gradient_checkpointing
    ranks = (fitting_ranks(rows_of_a_node(vars(options)), options.micro_batch, most) or most) if on_gpu else 1
    device = "cuda" if on_gpu else "cpu"
    those = {"device": device, "ranks": options.ranks if "ranks" in run.given else ranks}
    those = {**vars(options), **those}
    return {
        "device": device,
        "precision": precision,
        "ranks": ranks,
        "threads": left_threads(those, machine.cpus),
        **left_backend(those),
        "compile": on_gpu and can_compile(machine) and is_plain,
        "attention": attention,
    }


def _attention(run: TrainRun, precision: str, machine: Machine) -> str:
    """Return the fastest attention on the machine's GPUs."""
    has_cudnn = prefers_cudnn(precision, head_width(run), machine.capability)
    if unfit_for_varlen(run, precision, machine) or (has_cudnn and run.options.packing == "one"):
        return plain_attention(run.options)
    return "varlen"


def _with(run: TrainRun, left: list[str], values: Mapping[str, Any]) -> TrainConfig:
    """Return the options with these values for those left to the machine.

    Raises:
        EnvironmentFault: they contradict what was given; says what would work, and where.
    """
    options: TrainConfig = run.options
    try:
        return dataclasses.replace(options, **{name: values[name] for name in left})
    except ValueError as error:
        changes = off_the_gpu(run, values["precision"]) if values["device"] == "cpu" else {}
        found = "no GPU was found here or by the run that decided; --device cuda trains where one is"
        advice = f". {found}, or {go_on(changes)}" if changes else ""
        raise EnvironmentFault(f"{error} (chosen automatically: {_shown(values, left)}){advice}") from error


def _as_recorded(run: TrainRun, left: list[str], record: AutoRecord, name: str) -> dict[str, Any]:
    """Return what the options become on the machine that a record describes.

    Raises:
        DataError: the record is damaged, or belongs to other options.
    """
    precision = str(record.options.get("precision"))
    try:
        if precision not in PRECISIONS or ("precision" not in left and precision != run.options.precision):
            raise ValueError(f"expected a precision, one of {', '.join(PRECISIONS)}; found {record.options}")
        made = _recipe(run, {"precision": precision}).key
        if (record.stage, record.key) != (run.stage.name, made):
            raise ValueError(f"it is of {record.stage}/{record.key[:12]}, and what it says makes {made[:12]}")
        machine = Machine.from_facts(record.machine)
    except ValueError as error:
        raise DataError(f"{run.store.uri}/{name}: damaged: {error}; {AUTO_RECORD.mend}") from error
    return decide(run, machine, precision)


def _digest(run: TrainRun, left: list[str]) -> str:
    """Digest of the given options and the inputs: the key with `auto` in place of what was left open."""
    device = {"device": run.options.device} if "device" in run.given else {}
    return _recipe(run, dict.fromkeys(left, AUTO), device).key


def _recipe(run: TrainRun, changes: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> Recipe:
    """Return what makes the output; of the options left to `auto`, only the precision is part of it."""
    semantic = by_kind(run.options, "semantic")
    semantic |= {name: value for name, value in changes.items() if name in semantic}
    return Recipe(
        stage=run.stage.name,
        revision=run.stage.revision,
        semantic=semantic | dict(more or {}),
        inputs=dict(run.inputs),
    )


def _shown(values: Mapping[str, Any], left: list[str]) -> str:
    return " ".join(f"{name}={spelled(values[name])}" for name in left)


def with_length(
    options: TrainConfig,
    given: Collection[str],
    *,
    goes_on: bool,
    tokens_of_the_text: Callable[[], int],
    rows_of_an_epoch: Callable[[], int],
) -> TrainConfig:
    """Return the options that a training really has, with those of its length settled into the others.

    Args:
        given: options that somebody gave, or a preset: a warm-up that none did follows from the steps.
        goes_on: whether it starts from a model.
        tokens_of_the_text: says how many there are for training; called where nobody gave the steps.
        rows_of_an_epoch: counts the rows of the text; called where --epochs is given.

    Raises:
        UsageError: the others do not allow it.
    """
    epochs, share = options.epochs, options.warmup_share
    changes: dict[str, Any] = {"epochs": 0.0, "warmup_share": 0.0}
    if epochs:
        rows = rows_of_an_epoch()
        changes["steps"] = max(1, math.ceil(epochs * rows / options.batch_rows))
        log.info(
            "--epochs %g: %s of %d of %s",
            epochs,
            plural(changes["steps"], "step"),
            options.batch_rows,
            plural(rows, "row"),
        )
    elif "steps" not in given and not goes_on:
        tokens, step = tokens_of_the_text(), options.batch_rows * options.context
        steps = max(LEAST_STEPS, math.ceil(READINGS * tokens / step))
        if steps < options.steps:
            changes["steps"] = steps
            log.info(
                "--steps %d: the text of %s tokens is read %.1f times; give --steps for more",
                steps,
                f"{tokens:,}",
                steps * step / tokens,
            )
    if "steps" in changes and "warmup_steps" not in given:
        changes |= ScheduleOptions.left_open(changes)
    if "steps" in changes or share:
        options = dataclasses.replace(options, **changes)
    options = as_continued(options, given, goes_on=goes_on)
    if share:
        warm = max(1, round(share * options.steps))
        log.info("--warmup-share %g: %d of %s", share, warm, plural(options.steps, "step"))
        options = dataclasses.replace(options, warmup_steps=warm)
    return options


def as_continued(options: TrainConfig, given: Collection[str], *, goes_on: bool) -> TrainConfig:
    """Return the options that a training really has, with those of this group settled into the others.

    Args:
        given: options that somebody gave: a warm-up that nobody did follows from the steps.
        goes_on: whether it starts from a model.

    Raises:
        UsageError: the others do not allow it.
    """
    own = {name: getattr(options, name) for name in names_of(ContinuedOptions)}
    defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(ContinuedOptions)}
    said = {name: value for name, value in own.items() if value != defaults[name]}
    if not said:
        return options
    shown = ", ".join(f"{flag(name)} {spelled(value)}" for name, value in said.items())
    if not goes_on:
        log.info("a new model is trained: %s is for one that goes on", shown)
        return dataclasses.replace(options, **defaults)
    changes: dict[str, Any] = {"steps": options.continued_steps or options.steps}
    if "warmup_steps" not in given:
        changes["warmup_steps"] = ScheduleOptions.left_open(changes)["warmup_steps"]
    rates = {name: getattr(options, name) * options.continued_peak for name in RATES}
    changes |= {name: float(f"{rate:.{_DIGITS}g}") for name, rate in rates.items()}
    log.info(
        "the training goes on from a model, with %s: %s, %s of them warm-up, muon_learning_rate %g",
        shown,
        plural(changes["steps"], "step"),
        changes.get("warmup_steps", options.warmup_steps),
        changes["muon_learning_rate"],
    )
    return dataclasses.replace(options, **defaults, **changes)
