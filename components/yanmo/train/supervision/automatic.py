"""What a training's options become that nobody gave: where it trains, in which precision, by how many ranks.

On a CPU they are the defaults. On GPUs they are what a person with one wants: bf16 where it is native, one
rank per visible GPU, variable-length flash attention where it runs, compiled layers where a compiler is.
The precision is part of the key, so what was found is recorded first (common/store/auto_record.py), and
whoever gives the same options on the same inputs later, on whatever machine, takes the record.

The backend stays DeepSpeed on one GPU as well: on one CPU rank torch's is 1.13 times as fast (docs/train.md),
and on a GPU nobody has measured either.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from yanmo.common.errors import EnvironmentFault
from yanmo.common.options import AUTO, by_kind, spelled
from yanmo.common.stage_run import StageRun
from yanmo.common.store.auto_record import AutoRecord, keep_first, put_in_place, read_record, record_name
from yanmo.common.store.commit import Recipe
from yanmo.model.flash_limits import misfit
from yanmo.train.backends.machine import Machine, gpu_files, this_machine
from yanmo.train.config import TrainConfig
from yanmo.train.models.given import CONFIG, read_config, shape_in
from yanmo.train.options.engine import CPU_RANKS, fitting_ranks

log = logging.getLogger(__name__)
LEFT = ("device", "precision", "ranks", "compile", "attention")
"""Options that the machine decides where nobody gives them."""
_NATIVE_BF16, _TRITON = (8, 0), (7, 0)
"""Least compute capabilities: of bf16 in the tensor cores (Ampere), of Triton's code (Volta)."""
_TYPES: dict[str, Callable[[Any], bool]] = {
    "device": lambda value: value in ("cpu", "cuda"),
    "precision": lambda value: value in ("fp32", "bf16"),
    "ranks": lambda value: type(value) is int and value >= 1,
    "compile": lambda value: isinstance(value, bool),
    "attention": lambda value: value in (AUTO, "varlen", "flash", "masked"),
}
Look = Callable[[], Machine]


def settle(run: StageRun, look: Look = this_machine) -> TrainConfig:
    """The options with a value in the place of what was left to the machine.

    Args:
        look: what this machine has; asked only where no record is found.

    Raises:
        DataError: the record is damaged.
        EnvironmentFault: what the others became contradicts an option that was given.
    """
    options: TrainConfig = run.options
    left = [name for name in LEFT if name not in run.given]
    if not left or ("device" in run.given and options.device != "cuda"):
        return options  # off CUDA they are the defaults, on every machine
    if options.benchmark:  # it tries compiling itself, and another precision wants another attention
        return _with(options, [n for n in left if n not in ("compile", "attention")], decide(run, look()))
    name = record_name(run.stage.name, _digest(run, left))

    def check(record: AutoRecord) -> None:
        wrong = [n for n, fits in _TYPES.items() if n not in record.options or not fits(record.options[n])]
        if wrong or len(record.options) != len(LEFT):
            raise ValueError(f"expected {', '.join(LEFT)}; found {record.options}")
        made = _key(run, left, record.options)
        if (record.stage, record.key) != (run.stage.name, made):
            raise ValueError(f"it is of {record.stage}/{record.key[:12]}, and what it says makes {made[:12]}")

    found = None if options.auto_again else read_record(run.store, name, check)
    if found is not None:
        log.info("auto: %s, as recorded in %s/%s", _shown(found.options), run.store.uri, name)
        if found.options["device"] == "cpu" and gpu_files():
            log.info(
                "a GPU may be here: --device cuda makes a training of its own, --auto-again decides again"
            )
        return _with(options, left, found.options)
    machine = look()
    mine = decide(run, machine)
    settled = _with(options, left, mine)  # what cannot be is not recorded
    record = AutoRecord(
        stage=run.stage.name,
        key=_key(run, left, mine),
        options=mine,
        machine=dataclasses.asdict(machine),
        run_id=options.run_id,
    )
    if options.auto_again:
        first = put_in_place(run.store, name, record)
    else:
        first = keep_first(run.store, name, record, check)
    who = f"decided here ({machine})" if first == record else "decided by another machine just now"
    log.info("auto: %s, %s, kept in %s/%s", _shown(first.options), who, run.store.uri, name)
    return settled if first == record else _with(options, left, first.options)


def decide(run: StageRun, machine: Machine) -> dict[str, Any]:
    """What the options become on a machine.

    Of those that were given only device and precision count: the name of the record says them, and a wrong
    `--ranks` must not be what later runs find.
    """
    options: TrainConfig = run.options
    rows = (options.micro_batch, options.night_micro_batch)
    on_gpu = options.device == "cuda" if "device" in run.given else machine.gpus > 0
    most = max(machine.gpus, 1) if on_gpu else CPU_RANKS
    capability = machine.capability or (0, 0)
    precision = "bf16" if on_gpu and capability >= _NATIVE_BF16 else "fp32"
    if "precision" in run.given:
        precision = options.precision
    attention = AUTO
    if on_gpu:
        attention = _plain_attention(options) if _unfit(run, precision, machine) else "varlen"
    is_plain = options.zero_stage < 3 and options.offload == "none" and not options.gradient_checkpointing
    return {
        "device": "cuda" if on_gpu else "cpu",
        "precision": precision,
        "ranks": fitting_ranks(options.batch_rows, rows, most) or most,
        "compile": on_gpu and machine.compiles and capability >= _TRITON and is_plain,
        "attention": attention,
    }


def check_machine(run: StageRun, look: Look = this_machine) -> None:
    """Refuse a training that this machine cannot do; called where the output has to be made.

    Raises:
        EnvironmentFault: says what it wants, what is here, and which flags go on here.
    """
    options: TrainConfig = run.options
    if options.device != "cuda":
        return
    machine = look()
    rows = (options.micro_batch, options.night_micro_batch)
    most = fitting_ranks(options.batch_rows, rows, machine.gpus)
    recorded = [name for name in LEFT if name not in run.given]
    whose = f" ({', '.join(recorded)} as recorded for these options)" if recorded else ""
    wanted = f"this training is for {options.ranks} GPU{'s' * (options.ranks > 1)}{whose}"
    if not machine.gpus:
        raise EnvironmentFault(
            f"{wanted}, and this machine shows none; run the command where there are, or go on here with "
            f"--device cpu --precision {options.precision}"
        )
    if machine.gpus < options.ranks:
        raise EnvironmentFault(
            f"{wanted}, and this machine shows {machine.gpus}; run the command where there are more, or go "
            f"on here with --ranks {most or machine.gpus}"
        )
    unfit = _unfit(run, options.precision, machine)
    if options.attention == "varlen" and unfit:
        raise EnvironmentFault(
            f"--attention varlen: {unfit}; go on here with --attention {_plain_attention(options)}"
        )
    if most > options.ranks:
        idle = machine.gpus - options.ranks
        log.info("%d of %d GPUs stay idle; --ranks %d trains on more", idle, machine.gpus, most)


def _plain_attention(options: TrainConfig) -> str:
    return "flash" if options.packing == "one" else "masked"


def _unfit(run: StageRun, precision: str, machine: Machine) -> str:
    """What keeps variable-length flash attention from running on the machine's GPUs; "" for nothing."""
    model = run.inputs["model"]
    shape = shape_in(read_config(model.path(CONFIG))) if model else {"head_width": run.options.head_width}
    found = misfit("cuda", precision, shape["head_width"], machine.capability)
    return found or ("" if machine.has_varlen else "this torch has no torch.nn.attention.varlen")


def _with(options: TrainConfig, left: list[str], values: Mapping[str, Any]) -> TrainConfig:
    try:
        return dataclasses.replace(options, **{name: values[name] for name in left})
    except ValueError as error:
        raise EnvironmentFault(f"{error} (left to itself: {_shown(values)})") from error


def _digest(run: StageRun, left: list[str]) -> str:
    """Of the options as given and the inputs: the key with `auto` in the place of what was left open."""
    device = {"device": run.options.device} if "device" in run.given else {}
    return _recipe(run, dict.fromkeys(left, AUTO), device).key


def _key(run: StageRun, left: list[str], values: Mapping[str, Any]) -> str:
    return _recipe(run, {name: values[name] for name in left}).key


def _recipe(run: StageRun, changes: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> Recipe:
    semantic = by_kind(run.options, "semantic")
    semantic |= {name: value for name, value in changes.items() if name in semantic}
    return Recipe(
        stage=run.stage.name,
        revision=run.stage.revision,
        semantic=semantic | dict(more or {}),
        inputs=dict(run.inputs),
    )


def _shown(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={spelled(values[name])}" for name in LEFT)
