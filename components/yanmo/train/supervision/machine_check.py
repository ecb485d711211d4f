"""Whether this machine can do a training, and which flags would train here where it cannot."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from typing import Any

from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import EnvironmentFault
from yanmo.common.given_file import read_object
from yanmo.common.words import plural
from yanmo.model.flash_limits import half_precision, misfit
from yanmo.options.fields import flag, names_of, spelled
from yanmo.stage.stage_run import StageRun
from yanmo.train.backends.hardware import Machine, this_machine
from yanmo.train.config import TrainConfig
from yanmo.train.models.starting_model import CONFIG, shape_in
from yanmo.train.options.machine_options import fitting_ranks, rows_of_a_node

log = logging.getLogger(__name__)
TrainRun = StageRun[TrainConfig, None]
LEFT = names_of(TrainConfig, by_machine=True)
"""Options that the machine decides where they are not given."""
_TRITON = (7, 0)
"""Lowest compute capability for Triton (Volta)."""
Look = Callable[[], Machine]


def check_machine(run: TrainRun, look: Look = this_machine) -> None:
    """Refuse a training that this machine cannot do; called when the output has to be made.

    Raises:
        EnvironmentFault: says what it needs, what is here, and which flags would train here.
    """
    options: TrainConfig = run.options
    if importlib.util.find_spec("torch") is None:
        raise EnvironmentFault(
            "torch is not installed here: give the nodes of a cluster the image yanmo-train, "
            "or `pip install` Yanmo with its extra train"
        )
    if lacks_deepspeed(options):
        given = f"--zero-stage {options.zero_stage} or --offload {options.offload}"
        why = "--backend deepspeed" if "backend" in run.given else f"what needs DeepSpeed ({given})"
        raise EnvironmentFault(
            f"{why}: DeepSpeed is not installed; `make install` installs it on Linux x86_64 only. "
            "--backend torch trains here, without those"
        )
    if options.device != "cuda":
        _say_cpus(options)
        return
    machine = look()
    # Where the precision was given, there may be no record: this machine's own facts are used.
    recorded = [name for name in LEFT if name not in run.given and "precision" not in run.given]
    whose = f" ({', '.join(recorded)} as recorded for these options)" if recorded else ""
    problem = problem_of(run, options, machine, whose)
    if problem:
        raise EnvironmentFault(problem)
    if options.precision == "bf16" and half_precision(machine.capability) == "fp16":
        log.warning("%s emulates bf16, which is slow: --precision fp16 is made for it", machine.name)
    most = _most_ranks(options, machine)
    if most > options.ranks:
        idle = machine.gpus - options.ranks
        log.info("%d of %s stay idle; --ranks %d trains on more", idle, plural(machine.gpus, "GPU"), most)


def _say_cpus(options: TrainConfig) -> None:
    """Log how many of this machine's CPUs a training uses, where that is not all of them."""
    used, cpus = options.ranks * options.threads, usable_cpus()
    if used > cpus:
        log.info("%d threads on %s: as it began, so that the digits stay the same", used, plural(cpus, "CPU"))
    elif used < cpus:
        more = cpus // options.ranks
        hint = f"; --threads {more} uses more, with other last digits" if more > options.threads else ""
        log.info("%d of %d CPUs stay idle%s", cpus - used, cpus, hint)


def problem_of(run: TrainRun, options: TrainConfig, machine: Machine, whose: str = "") -> str:
    """Return why a machine cannot do a training, where it could run, and what works here; "" if it can.

    Args:
        whose: where the number of GPUs comes from.
    """
    if options.device != "cuda":
        return ""
    wanted = f"this training is for {options.ranks} GPU{'s' * (options.ranks > 1)}{whose}"
    if not machine.gpus:
        here = {"device": "cpu", "precision": options.precision} | off_the_gpu(run, options.precision)
        return f"{wanted}, and this machine shows none; run the command where there are, or {go_on(here)}"
    reasons, here = [], dict[str, Any]()
    if machine.gpus < options.ranks:
        reasons.append(
            f"{wanted}, and this machine shows {machine.gpus}; run the command where there are more"
        )
        here["ranks"] = _most_ranks(options, machine)
    unfit = unfit_for_varlen(run, options.precision, machine)
    if options.attention == "varlen" and unfit:
        reasons.append(f"--attention varlen: {unfit}")
        here["attention"] = plain_attention(options)
    if options.compile and not can_compile(machine):
        reasons.append(f"--compile: Triton finds no compiler here, or the GPU is too old ({machine})")
        here["compile"] = False
    return f"{'; '.join(reasons)}; or {go_on(here)}" if reasons else ""


def go_on(flags: Mapping[str, Any]) -> str:
    return f"go on here with {' '.join(f'{flag(name)} {spelled(v)}' for name, v in flags.items())}"


def off_the_gpu(run: TrainRun, precision: str) -> dict[str, Any]:
    """Changes to the given options that a training without a GPU needs."""
    options: TrainConfig = run.options
    changes: dict[str, Any] = {}
    if options.attention == "varlen" and "attention" in run.given:
        changes["attention"] = plain_attention(options)
    if options.offload != "none":
        changes["offload"] = "none"
    if precision == "fp16":  # DeepSpeed has it on GPUs only
        changes |= {"backend": "torch"} | ({"zero_stage": 1} if options.zero_stage > 1 else {})
    return changes


def _most_ranks(options: TrainConfig, machine: Machine) -> int:
    """Return the largest number of ranks for its GPUs; 1 always works if the options are consistent."""
    return fitting_ranks(rows_of_a_node(vars(options)), options.micro_batch, machine.gpus)


def can_compile(machine: Machine) -> bool:
    return machine.compiles and (machine.capability or (0, 0)) >= _TRITON


def plain_attention(options: TrainConfig) -> str:
    return "flash" if options.packing == "one" else "masked"


def lacks_deepspeed(options: TrainConfig) -> bool:
    return options.backend == "deepspeed" and importlib.util.find_spec("deepspeed") is None


def head_width(run: TrainRun) -> int:
    model = run.inputs["model"]
    return int(shape_in(read_object(model.path(CONFIG)))["head_width"]) if model else run.options.head_width


def unfit_for_varlen(run: TrainRun, precision: str, machine: Machine) -> str:
    """Return why variable-length flash attention cannot run on the machine's GPUs; "" if it can."""
    return misfit("cuda", precision, head_width(run), machine.capability)
