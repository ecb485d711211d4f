"""`yanmo train`: checks, starts the workers with torchrun, watches them, commits the model.

The supervisor never imports torch: it stays small and answers /metrics and signals whatever the workers do.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from yanmo.common.errors import EnvironmentFault, StorageError
from yanmo.common.json_object import read_object
from yanmo.common.logs import human_bytes
from yanmo.common.made_by import made_by
from yanmo.formats.documents import text_form
from yanmo.formats.seed_noise import PART
from yanmo.formats.token_cache import TokenCache
from yanmo.stage.exporter import Telemetry
from yanmo.stage.stage_run import Finish
from yanmo.store.commit import Result
from yanmo.store.output import Output
from yanmo.store.pause import Pause
from yanmo.train import job
from yanmo.train.backends.hardware import this_machine
from yanmo.train.backends.zero_config import engine_config
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import FOLDER as HEARTBEATS
from yanmo.train.health.watchdog import doings
from yanmo.train.job import Status, WorkerJob, clear, raise_failure, read_metrics
from yanmo.train.memory.estimate import divisors
from yanmo.train.memory.fitting import fitted
from yanmo.train.memory.micro_batch import halve_micro_batch, largest_micro_batch
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.models.model_card import model_card
from yanmo.train.models.starting_model import (
    CONFIG,
    check_finite,
    check_tokenizer,
    shape_in,
    with_shape_of,
)
from yanmo.train.options.model_options import num_parameters, shape_of
from yanmo.train.supervision.automatic import Look, TrainRun, check_machine
from yanmo.train.supervision.power import power_limit
from yanmo.train.supervision.twins import seed_noise
from yanmo.train.supervision.worker_group import WorkersLog, end, start, watch
from yanmo.train.time_window import TimeWindow, TimeWindows

log = logging.getLogger(__name__)


def work(run: TrainRun, look: Look = this_machine) -> Result:
    """Train, and put the model into the attempt.

    Args:
        look: returns what this machine has.
    """
    options: TrainConfig = run.options
    cache = TokenCache.open(run.input("token_cache"))
    folder = run.work_folder.path
    folder.mkdir(parents=True, exist_ok=True)
    uploader = Uploader(run.work_folder, run.attempt.lease)
    windows, parts = TimeWindows(options.hours()), dict[str, Output]()

    @functools.cache
    def task() -> WorkerJob:
        check_machine(run, look)
        return _task(run, cache, folder)

    if not (folder / job.EXPORT).exists():
        first = task()
        uploader.restore()
        pause = _train(first, windows, MetricsGauges(run.telemetry, folder), uploader)
        if pause:
            uploader.save()
            return Result(counts={}, pause=pause)
    if options.twins:
        noise = seed_noise(run, task, functools.partial(_train_twin, windows))
        parts = {PART: noise} if noise else {}
    return dataclasses.replace(_result(run, cache, folder), references=parts)


def _task(run: TrainRun, cache: TokenCache, folder: Path) -> WorkerJob:
    """The job of the workers, checked."""
    model = run.inputs["model"]
    options = _checked(run.options, cache, model, folder)
    if options.backend == "deepspeed":
        engine_config(options)  # refuses a file that contradicts, before torch is imported
    return WorkerJob(
        options=options,
        store=run.store.uri,
        token_cache=run.input("token_cache").reference,
        model=model.reference if model else None,
        folder=folder,
    )


def _train_twin(windows: TimeWindows, task: WorkerJob, uploader: Uploader) -> Pause | None:
    """`_train` without metrics on /metrics, which belong to the model."""
    return _train(task, windows, MetricsGauges(Telemetry("train"), task.folder), uploader)


def forget(run: TrainRun, output: Output) -> Finish:
    """Delete the checkpoints and working files of a finished run; its model is committed."""
    if run.options.twins > 1 and PART not in output.manifest.references:
        log.warning(
            "%s holds no seed noise: it was trained without --twins, or too few were done; the same command "
            "with --force trains it again and measures it by %d twins",
            output,
            run.options.twins,
        )
    folder = run.work_folder.path
    run.work_folder.forget()
    for name in (job.CHECKPOINTS, job.EXPORT):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (job.METRICS, job.TRACE, job.MICRO_BATCH, "job.json", "workers.log"):
        (folder / name).unlink(missing_ok=True)
    clear(folder)
    with suppress(OSError):
        (folder / HEARTBEATS).rmdir()
    return Finish()


def _checked(options: TrainConfig, cache: TokenCache, model: Output | None, folder: Path) -> TrainConfig:
    """The options with a micro batch that fits, after checks of the starting model, memory and disk.

    Raises:
        DataError, EnvironmentFault, StorageError: a check failed; says what to do.
    """
    shaped = options
    if model is not None:
        check_tokenizer(model, cache)
        shaped = with_shape_of(options, model)
        check_finite(model)
    # Only the micro batch is taken over: a checkpoint remembers the options as they were given.
    rows = fitted(shaped, cache.vocab_size).micro_batch  # first: more disk space would not help it
    _check_space(folder, shaped, cache)
    return dataclasses.replace(options, micro_batch=rows)


def _check_space(folder: Path, options: TrainConfig, cache: TokenCache) -> None:
    """Refuse to start where two checkpoints and the model will not fit in the free space.

    Raises:
        EnvironmentFault: the whole disk is too small.
        StorageError: too little space now, how much there is and is needed.
    """
    parameters = num_parameters(shape_of(options), cache.vocab_size)
    needed = parameters * 4 * (3 * 3 + 2)  # weight and two states, three times; the model twice
    disk = shutil.disk_usage(folder)
    own = sum(path.stat().st_size for path in folder.glob(f"{job.CHECKPOINTS}/*/*"))  # if it is resumed
    if disk.free + own >= needed:
        return
    what = f"checkpoints and model of {parameters / 1e6:.1f} M parameters need {human_bytes(needed)}"
    if disk.total < needed:
        raise EnvironmentFault(
            f"{folder}: {what}, and the whole disk has {human_bytes(disk.total)}; give a --store on a larger "
            "one, or a smaller model (--size, --layers, --width)"
        )
    raise StorageError(
        f"{folder}: {human_bytes(disk.free)} free, {what}; free space, or give another --store"
    )


def _train(task: WorkerJob, windows: TimeWindows, gauges: MetricsGauges, uploader: Uploader) -> Pause | None:
    """Run the workers, one time window after another, to the end; where and why they paused, if they did.

    Raises:
        Exception: the error that ended a worker, so that the stage has its exit code.
    """
    with _stop_file(task.folder / job.STOP) as stopping:
        while True:
            clear(task.folder)
            window = windows.current()
            if stopping or (window.ends_at <= time.time() and window.then == "paused"):
                return _pause(task, _saved_step(task.folder), window, stopping)
            statuses = _one_window(_for_window(task, window), gauges, uploader, stopping)
            if statuses is None:
                continue  # with a smaller micro batch
            states = {status.state for status in statuses}
            if states == {"done"}:
                return None
            if states != {"changed"}:
                return _pause(task, max(status.step for status in statuses), window, stopping)


def _pause(task: WorkerJob, step: int, window: TimeWindow, stopping: list[float]) -> Pause:
    why = "asked to stop by a signal" if stopping else window.reason
    return Pause(where=f"step {step} of {task.options.steps}", why=why, is_planned=not stopping)


def _saved_step(folder: Path) -> int:
    """The step of the newest checkpoint, 0 where there is none; whether it is whole, the next start sees."""
    names = [path.name.removeprefix("step-") for path in (folder / job.CHECKPOINTS).glob("step-*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _for_window(task: WorkerJob, window: TimeWindow) -> WorkerJob:
    """The job with the settings of a time window, and no larger a micro batch than has fitted."""
    options = task.options.by_night() if window.is_night else task.options
    most, note = largest_micro_batch(task.folder)
    if most and options.micro_rows > most:
        rows = next(n for n in divisors(options) if n <= most)  # it may be from a run with other --ranks
        options = dataclasses.replace(options, micro_batch=rows)
    elif window.is_night or task.options.night:
        note = f"settings of the {'night' if window.is_night else 'day'}"
    else:
        note = ""
    ends_at = None if math.isinf(window.ends_at) else window.ends_at
    return dataclasses.replace(
        task, options=options, ends_at=ends_at, then=window.then, reason=window.reason, note=note
    )


def _one_window(
    task: WorkerJob, gauges: MetricsGauges, uploader: Uploader, stopping: list[float]
) -> list[Status] | None:
    """How the ranks ended; None when the micro batch was halved and they have to be started again."""

    def look() -> None:
        gauges.show()
        uploader.check()

    with power_limit(task.options.power_watts):
        process = start(task.options, task.write())
        workers_log = WorkersLog(process, task.folder / "workers.log")
        workers_log.start()
        try:
            with uploader:
                watch(
                    process,
                    workers_log,
                    task.folder,
                    ranks=task.options.ranks,
                    hang_seconds=task.options.hang_seconds,
                    stopping=stopping,
                    each_time=look,
                )
        finally:
            end(process)
        workers_log.wait()
    gauges.show()
    full = [status for status in workers_log.statuses if status.out_of_memory]
    if full:  # also while stopping: a micro batch that did not fit must not be tried again
        halve_micro_batch(task, full[0])
        return None
    raise_failure(workers_log.statuses, task.options.ranks, doings(task.folder), workers_log.tail)
    return workers_log.statuses


@contextmanager
def _stop_file(path: Path) -> Iterator[list[float]]:
    """While inside, SIGTERM, SIGHUP and Ctrl-C create the file that asks the workers to save and end.

    Yields:
        A list that holds the time of the first request, once there was one.
    """
    asked: list[float] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        if not asked:
            asked.append(time.monotonic())
            log.info("asked to stop: saving after this step")
        try:
            path.touch()
        except OSError as error:  # an exception in here could end the stage anywhere
            log.warning("%s cannot be written (%s): the workers end without saving", path, error)

    before = {s: signal.signal(s, stop) for s in (signal.SIGTERM, signal.SIGINT)}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # a terminal that is gone; nohup ignores it
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, stop)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _result(run: TrainRun, cache: TokenCache, folder: Path) -> Result:
    export = folder / job.EXPORT
    result: dict[str, Any] = json.loads((export / job.RESULT).read_text(encoding="utf-8"))
    for name in result["files"]:
        shutil.copyfile(export / name, run.attempt.path(name))
        run.attempt.add(name)
    lines = read_metrics(folder / job.METRICS)
    run.attempt.write("metrics.jsonl", (folder / job.METRICS).read_bytes(), role="record")
    valid: dict[str, float | None] = {}
    for line in lines:
        valid = line.get("valid_bits_per_character", valid)
    if (folder / job.TRACE).exists():
        shutil.copyfile(folder / job.TRACE, run.attempt.path(job.TRACE))
        run.attempt.add(job.TRACE, role="record")
    shape = shape_in(read_object(export / CONFIG))
    card = model_card(run.options, {**result, **shape}, valid, run.input("token_cache"))
    run.attempt.write("README.md", card, role="record")
    counts = {name: result[name] for name in ("steps", "tokens", "parameters")}
    metadata: dict[str, Any] = {
        "valid_bits_per_character": valid,
        "seconds": result["seconds"],
        "made_by": made_by(),
        "genres": list(cache.genres),
        "precision": run.options.precision,
        "text_form": text_form(run.input("token_cache")),
        "events": [line for line in lines if "event" in line],
    }
    # GPU-hours are counted from these; an export of an older version lacks them.
    metadata |= {name: result[name] for name in ("device", "device_name", "ranks") if name in result}
    return Result(counts=counts, metadata=metadata)
