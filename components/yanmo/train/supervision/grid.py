"""`--benchmark`: tries execution settings on this machine and prints the fastest as an options file.

Only settings that change no sample and no key: ranks and threads (on a CPU), micro batch, ZeRO stage,
backend, and torch.compile where there is a compiler. Each trial is a real training of a few steps in a
temporary folder. Ranks and threads are tried with every micro batch; backend, stage and compiling only
with the best of those, as they hardly depend on it. Settings that come near each other are tried again in
turns (contest.py); where that does not settle the order, the table says so.

The precision is semantic: another one makes another model. It is measured with the best setting, reported
in a comment, and left out of the options file.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from yanmo.common.answers import answer
from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.model.flash_limits import half_precision
from yanmo.options.yaml_file import dump_yaml
from yanmo.stage.stage_run import Prepared, Skip
from yanmo.train import job
from yanmo.train.backends.accelerator import compile_problem
from yanmo.train.backends.hardware import this_machine
from yanmo.train.backends.zero_config import engine_config
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob, read_metrics
from yanmo.train.options.machine_options import AUTO
from yanmo.train.supervision.automatic import TrainRun
from yanmo.train.supervision.contest import NEAR, Contest, contest
from yanmo.train.supervision.worker_group import WorkersLog, start, watch

log = logging.getLogger(__name__)
_WARM_STEPS, _STEPS = 4, 12
Setting = dict[str, Any]
Clock = Callable[[TrainRun, TrainConfig], float]


def prepare(run: TrainRun) -> Prepared[None]:
    """With `--benchmark`, run the benchmark instead of a training; adds nothing to the key.

    Raises:
        Skip: the benchmark is done.
        UsageError: --deepspeed-config contradicts an option; also where the model is committed already.
    """
    if os.environ.get("TORCHELASTIC_RUN_ID"):
        raise UsageError(
            "started by torchrun: run `yanmo train` itself, once on each node, with --nnodes and --ranks; "
            "it starts its ranks itself (docs/nodes.md)"
        )
    if run.options.benchmark:
        raise Skip(f"--benchmark trains no model; the fastest settings: {best_settings(run)}")
    if run.options.deepspeed_config:
        engine_config(run.options, check_batch=run.options.micro_batch != AUTO)
    return Prepared(None)


def best_settings(run: TrainRun, clock: Clock | None = None) -> Setting:
    """Try settings, print a table and the fastest as YAML to stdout.

    Args:
        clock: tokens per second of a training with other options; `tokens_per_second` by default.

    Raises:
        EnvironmentFault: none of them runs here.
    """
    options: TrainConfig = run.options
    clock = clock or tokens_per_second
    settings: list[Setting] = []
    speeds: list[list[float]] = []

    def measure(number: int) -> float:
        speed = _speed(run, settings[number], clock)
        shown = _shown(settings[number])
        log.info("%s: %s", shown, f"{speed:.0f} tokens/s" if speed else "does not run here")
        return speed

    def first_trial(setting: Setting) -> None:
        settings.append(setting)
        speeds.append([measure(len(settings) - 1)])

    def leader() -> Setting:
        return settings[max(range(len(settings)), key=lambda i: speeds[i][0])]

    for setting in first_settings(options, usable_cpus()):
        first_trial(setting)
    best = leader()
    for change in second_settings(options):
        first_trial({**best, **change})
    if not options.compile and not compile_problem(options.device):
        first_trial({**leader(), "compile": True})
    if not any(values[0] for values in speeds):
        raise EnvironmentFault(
            f"--benchmark: none of {len(settings)} settings runs here; --log-level debug says why"
        )
    found = contest(speeds, measure)
    best, speed = settings[found.best], found.speed(found.best)
    lines = [*_table(found, settings), _verdict(found, settings), _advice(run, best, speed, clock)]
    answer("".join(f"# {line}\n" for line in lines) + dump_yaml(best))
    return {**best, "tokens_per_second": round(speed)}


def short() -> Setting:
    """Options of a training of a few steps, as the options declare them (`trial`)."""
    in_trial = {name: f.metadata["trial"] for name, f in TrainConfig.__dataclass_fields__.items()}
    return {
        **{name: value for name, value in in_trial.items() if value is not None},
        "steps": _WARM_STEPS + _STEPS,
    }


def _shown(setting: Setting) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


def _table(found: Contest, settings: list[Setting]) -> Iterator[str]:
    """A line per setting, the fastest first: median tokens per second and number of trials."""
    for number in sorted(range(len(settings)), key=lambda i: (i != found.best, -found.speed(i))):
        trials = len(found.speeds[number])
        count = "one trial" if trials == 1 else f"median of {trials} trials"
        yield f"{found.speed(number):.0f} {_shown(settings[number])} ({count})"


def _verdict(found: Contest, settings: list[Setting]) -> str:
    """Whether the first of the table is certainly the fastest; if not, which others may be."""
    if not found.rivals:
        once = f"; of {len(found.far)} others one trial was {NEAR} times slower and more" if found.far else ""
        safe = len(settings) - 1 - len(found.far)
        return f"the first is the fastest: {safe} others did not run or were slower beyond chance{once}"
    texts = []
    for number in found.rivals:
        middle, low, high = found.gain(number)
        texts.append(f"{_shown(settings[number])}: {middle:.2f} (99 % interval {low:.2f} to {high:.2f})")
    return (
        f"not certain that the first is the fastest, after {len(found.speeds[found.best])} rounds; it was so "
        f"many times as fast as: {'; '.join(texts)}"
    )


def first_settings(options: TrainConfig, cores: int) -> Iterator[Setting]:
    """Ranks and threads that fill the machine, with micro batches of a rank's rows, a half and a quarter.

    On GPUs there is one rank per GPU.
    """
    places = [(options.ranks, options.threads)]
    if options.device == "cpu":  # what was left to the machine is settled
        counts = sorted({1, max(cores // 2, 1), cores})
        places = [(ranks, cores // ranks) for ranks in counts if options.batch_rows % ranks == 0]
    for ranks, threads in places:
        share = options.batch_rows // ranks
        for rows in sorted({share // part for part in (1, 2, 4) if share % part == 0 and share >= part}):
            # The engine too: what is left open may be another one for another number of ranks.
            yield {"ranks": ranks, "threads": threads, "micro_batch": rows, "backend": options.backend}


def second_settings(options: TrainConfig) -> Iterator[Setting]:
    """Further settings, tried with the best of the first."""
    other = {"deepspeed": "torch", "torch": "deepspeed"}[options.backend]
    yield {"zero_stage": 1, "backend": other}
    yield {"zero_stage": 2, "backend": "deepspeed"}


def _advice(run: TrainRun, best: Setting, speed: float, clock: Clock) -> str:
    """The speed of the other precision, in a line."""
    options: TrainConfig = run.options
    other = "fp32"
    if options.precision == "fp32":
        other = half_precision(this_machine().capability) if options.device == "cuda" else "bf16"
    found = _speed(run, {**best, "precision": other}, clock)
    if not found:
        return f"--precision {other} does not run with these settings"
    return (
        f"--precision {other}: {found:.0f} tokens/s, {found / speed:.2f} times {options.precision}; it makes "
        "another model (another key), so that it is not in this file; one trial"
    )


def _speed(run: TrainRun, setting: Setting, clock: Clock) -> float:
    """Tokens per second of a setting; 0 where it does not run, or the other options contradict it."""
    try:
        options = dataclasses.replace(run.options, **{**short(), **setting})
    except ValueError as error:
        log.debug("%s", error)
        return 0.0
    return clock(run, options)


def tokens_per_second(run: TrainRun, options: TrainConfig) -> float:
    """The median speed of a few steps after the first ones; 0 where they do not run."""
    model = run.inputs["model"]
    with tempfile.TemporaryDirectory(prefix="yanmo-benchmark-") as name:
        folder = Path(name)
        cache = run.input("token_cache").reference
        task = WorkerJob(options, run.store.uri, cache, model.reference if model else None, folder)
        group = start(options, task.write())
        workers_log = WorkersLog(group, folder / "workers.log")
        workers_log.start()
        try:
            watch(
                group,
                workers_log,
                folder,
                ranks=options.ranks,
                hang_seconds=options.hang_seconds,
                stopping=[],
                each_time=lambda: None,
            )
        finally:
            group.end()
        workers_log.wait()
        lines = [x for x in read_metrics(folder / job.METRICS) if "loss" in x][_WARM_STEPS:]
    if not lines or any(status.state != "done" for status in workers_log.statuses):
        log.debug("it ended with %s", [status.message for status in workers_log.statuses])
        return 0.0
    return float(statistics.median(line["tokens_per_second"] for line in lines))
