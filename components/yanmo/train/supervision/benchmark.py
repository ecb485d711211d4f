"""`--benchmark`: tries execution settings on this machine and prints the fastest as an options file.

Only settings that change no sample and no key: ranks and threads (on a CPU), micro batch, ZeRO stage,
backend, and torch.compile where there is a compiler. Each trial is a real training of a few steps in a
temporary folder: ranks and threads first, then one change at a time of the fastest. Each setting has one
trial, so that on a machine that others use the first two may change places; trials in turns until the order
is certain cost six times as long.
"""

from __future__ import annotations

import dataclasses
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from yanmo.common.answers import answer
from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import EnvironmentFault
from yanmo.options.fields import flag, spelled
from yanmo.options.yaml_file import dump_yaml
from yanmo.train import job
from yanmo.train.backends.hardware import compile_problem
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob, read_metrics
from yanmo.train.supervision.machine_check import TrainRun
from yanmo.train.supervision.ranks import WorkersLog, start

log = logging.getLogger(__name__)
_WARM_STEPS, _STEPS = 4, 12
MOST_SETTINGS = 7
_MOST_SECONDS = 300.0
"""Of a trial; its speed is that of the steps so far."""
_SPEED = "tokens_per_second"
Setting = dict[str, Any]
Clock = Callable[[TrainRun, TrainConfig], float]


def best_settings(run: TrainRun, clock: Clock | None = None) -> Setting:
    """Try settings, print a table and the fastest as YAML to stdout.

    Args:
        clock: tokens per second of a training with other options; `tokens_per_second` by default.

    Raises:
        EnvironmentFault: none of them runs here.
    """
    log.info("at most %d settings, each for %.0f minutes at most", MOST_SETTINGS, _MOST_SECONDS / 60)
    tried: list[tuple[Setting, float]] = []
    for setting in settings(run.options, usable_cpus(), tried):
        speed = _speed(run, setting, clock or tokens_per_second)
        log.info("%s: %s", _shown(setting), f"{speed:.0f} tokens/s" if speed else "does not run here")
        tried.append((setting, speed))
    in_order = sorted(tried, key=lambda one: -one[1])
    best, fastest = in_order[0]
    if not fastest:
        raise EnvironmentFault(
            f"--benchmark: none of {len(tried)} settings runs here; --log-level debug says why"
        )
    table = "".join(f"# {speed:.0f} {_shown(setting)}\n" for setting, speed in in_order)
    answer(f"# tokens per second, one trial each:\n{table}{dump_yaml(best)}")
    return {**best, _SPEED: round(fastest)}


def settings(options: TrainConfig, cores: int, tried: Sequence[tuple[Setting, float]]) -> Iterator[Setting]:
    """Ranks and threads that fill the machine, then changes of the fastest in `tried`, which grows meanwhile.

    On GPUs there is one rank per GPU.
    """
    places = [(options.ranks, options.threads)]
    if options.device == "cpu":  # what was left to the machine is settled
        counts = sorted({1, max(cores // 2, 1), cores})
        places = [(ranks, cores // ranks) for ranks in counts if options.batch_rows % ranks == 0]
    for ranks, threads in places:
        # The engine too: what is left open may be another one for another number of ranks.
        rows = options.batch_rows // ranks
        yield {"ranks": ranks, "threads": threads, "micro_batch": rows, "backend": options.backend}

    def changed(**values: Any) -> Setting:
        return {**max(tried, key=lambda one: one[1])[0], **values}

    rows = options.batch_rows // changed()["ranks"]
    for part in (2, 4):
        if rows % part == 0:
            yield changed(micro_batch=rows // part)
    yield changed(zero_stage=1, backend={"deepspeed": "torch", "torch": "deepspeed"}[options.backend])
    if options.device != "cpu":
        yield changed(zero_stage=2, backend="deepspeed")
    if not options.compile and not compile_problem(options.device):
        yield changed(compile=True)


def short() -> Setting:
    """Return the options of a training of a few steps, as the options declare them (`trial`)."""
    in_trial = {name: f.metadata["trial"] for name, f in TrainConfig.__dataclass_fields__.items()}
    return {
        **{name: value for name, value in in_trial.items() if value is not None},
        "steps": _WARM_STEPS + _STEPS,
    }


def as_flags(best: Setting) -> str:
    """Return what `best_settings` gives back as flags of `yanmo train`, and how fast it was."""
    flags = (f"{flag(name)}={spelled(value)}" for name, value in best.items() if name != _SPEED)
    return f"{' '.join(flags)} ({best[_SPEED]} tokens/s)"


def _shown(setting: Setting) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


def _speed(run: TrainRun, setting: Setting, clock: Clock) -> float:
    """Tokens per second of a setting; 0 where it does not run, or the other options contradict it."""
    try:
        options = dataclasses.replace(run.options, **{**short(), **setting})
    except ValueError as error:
        log.debug("%s", error)
        return 0.0
    return clock(run, options)


def tokens_per_second(run: TrainRun, options: TrainConfig) -> float:
    """Return the median speed of a few steps after the first ones; 0 where they do not run."""
    model = run.inputs["model"]
    until = time.monotonic() + _MOST_SECONDS
    with tempfile.TemporaryDirectory(prefix="yanmo-benchmark-") as name:
        folder = Path(name)
        cache = run.input("token_cache").reference
        task = WorkerJob(options, run.store.uri, cache, model.reference if model else None, folder)
        group = start(options, task.write())
        workers_log = WorkersLog(group, folder / "workers.log")
        workers_log.start()
        try:
            while not group.have_ended and time.monotonic() < until:
                time.sleep(0.1)
        finally:
            group.end()
        workers_log.wait()
        lines = [x for x in read_metrics(folder / job.METRICS) if "loss" in x][_WARM_STEPS:]
    if not lines or any(status.state != "done" for status in workers_log.statuses):
        log.debug("it ended with %s", [status.message for status in workers_log.statuses])
        return 0.0
    return float(statistics.median(line["tokens_per_second"] for line in lines))
