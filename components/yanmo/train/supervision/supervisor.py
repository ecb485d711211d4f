"""`yanmo train`: checks, starts the ranks, watches them, commits the model.

The supervisor never imports torch: it stays small and answers /metrics and signals whatever the workers do.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.common.logs import human_bytes
from yanmo.formats.seed_noise import PART
from yanmo.formats.token_cache import TokenCache
from yanmo.options.fields import by_kind
from yanmo.stage.channel_lease import Busy, alone_in
from yanmo.stage.exporter import Telemetry
from yanmo.stage.nvml import power_limit
from yanmo.store.commit import Result
from yanmo.store.output import Output
from yanmo.store.pause import Pause
from yanmo.store.runs.failure_card import Details, attach, details_of
from yanmo.train import job
from yanmo.train.backends.hardware import memory_kills, this_machine
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.job import Status, WorkerJob, clear
from yanmo.train.memory.estimate import divisors, parameters
from yanmo.train.memory.fitting import fitted, halve_micro_batch, largest_micro_batch
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.models.starting_model import check_finite, check_tokenizer, vocabulary_of, with_shape_of
from yanmo.train.nodes.leader import Leader, leading, tell_busy
from yanmo.train.nodes.record import forget_parts
from yanmo.train.sinks.process import Sinks
from yanmo.train.supervision.committed import committed
from yanmo.train.supervision.ending import describe, raise_failure
from yanmo.train.supervision.machine_check import Look, TrainRun, check_machine
from yanmo.train.supervision.ranks import Unbegun, full_ranks, run_ranks
from yanmo.train.supervision.seed_twins import seed_noise
from yanmo.train.supervision.stopping import stop_file
from yanmo.train.supervision.unfinished import begins, ends, pauses
from yanmo.train.time_window import Hours, TimeWindow

_SHOWN_SECONDS = 1.0
"""How often the figures of the workers are read while nobody scrapes: as often as they write them."""


def work(run: TrainRun, look: Look = this_machine) -> Result:
    """Train, and put the model into the attempt.

    Args:
        look: returns what this machine has.
    """
    options: TrainConfig = run.options
    cache = TokenCache.open(run.input("token_cache"))
    folder = run.work_folder.path
    folder.mkdir(parents=True, exist_ok=True)
    uploader = Uploader(run.work_folder, run.attempt.lease, run.telemetry)
    if (run.telemetry.value("tries", room="stage") or 1) > 1:
        run.telemetry.add("restarts", reason="another try")
    hours, parts = Hours(options), dict[str, Output]()
    if not hours.is_over:
        begins(run, uploader.label)

    @functools.cache
    def task() -> WorkerJob:
        check_machine(run, look)
        return _task(run, cache, folder)

    with leading(run) as leader:
        try:
            if not (folder / job.EXPORT).exists():
                first = task()
                uploader.restore()
                if leader:
                    forget_parts(run.store, run.work_folder.name)
                with _sinks(run, first) as sinks:
                    gauges = MetricsGauges(run.telemetry, folder)
                    pause = train_or_pause(first, hours, gauges, uploader, leader)
                    sinks.is_done = pause is None
                if pause:
                    uploader.save()
                    pauses(run, uploader.label, pause)
                    if leader:
                        leader.pauses(pause)
                    return Result(counts={}, pause=pause)
        except Exception:
            ends(run, uploader.label)
            raise
        if options.twins:
            noise = seed_noise(run, task, functools.partial(_train_twin, hours, leader))
            parts = {PART: noise} if noise else {}
    return dataclasses.replace(committed(run, cache, folder), references=parts)


def train_or_pause(
    task: WorkerJob,
    hours: Hours,
    gauges: MetricsGauges,
    uploader: Uploader,
    others: Leader | None = None,
) -> Pause | None:
    """Run the workers to the end; return where and why they paused, if they did.

    Args:
        others: tells the other nodes of several what to train.

    Raises:
        Exception: the error that ended a worker, so that the stage has its exit code.
    """
    with stop_file(task.folder / job.STOP) as stopping:
        while True:
            clear(task.folder)
            window = hours.current()
            if stopping or window.ends_at <= time.time():
                return _pause(task, _saved_step(task.folder), window, stopping)
            try:
                statuses = _one_start(_started(task, window), hours, gauges, uploader, stopping, others)
            except Unbegun:
                return _pause(task, _saved_step(task.folder), window, stopping)
            except Exception as error:
                _say_what_is_kept(error, uploader)
                raise
            if statuses is None:
                gauges.out_of_memory()
                continue
            states = {status.state for status in statuses}
            if states == {"done"}:
                return None
            return _pause(task, max(status.step for status in statuses), window, stopping)


def _say_what_is_kept(error: Exception, uploader: Uploader) -> None:
    """Put the last good checkpoint onto the card of a failure."""
    details = details_of(error) or Details()
    kept = uploader.newest()
    if kept is not None:
        details = dataclasses.replace(details, checkpoint=kept.shown, saved_at=kept.saved_at)
    attach(error, dataclasses.replace(details, is_resumable=True))


def _pause(task: WorkerJob, step: int, window: TimeWindow, stopping: list[float]) -> Pause:
    """Return where and why it paused. Where somebody signals a rank and not the stage, nothing was
    asked here and no window is over."""
    is_planned = bool(window.reason) and not stopping
    whom = "" if stopping else " to another node or a rank" if task.options.nnodes > 1 else " to a rank"
    why = window.reason if is_planned else f"asked to stop by a signal{whom}"
    return Pause(where=f"step {step} of {task.options.steps}", why=why, is_planned=is_planned)


def _saved_step(folder: Path) -> int:
    """Return the step of the newest checkpoint, 0 where there is none; whether it is whole, the next start
    sees."""
    names = [path.name.removeprefix("step-") for path in (folder / job.CHECKPOINTS).glob("step-*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _started(task: WorkerJob, window: TimeWindow) -> WorkerJob:
    """Return the job with its end, and with no larger a micro batch than has fitted."""
    options, note = task.options, ""
    most, why = largest_micro_batch(task.folder)
    if most and options.micro_rows > most:
        rows = next(n for n in divisors(options) if n <= most)  # it may be from a run with other --ranks
        options, note = dataclasses.replace(options, micro_batch=rows), why
    ends_at = None if math.isinf(window.ends_at) else window.ends_at
    return dataclasses.replace(task, options=options, ends_at=ends_at, reason=window.reason, note=note)


def _one_start(
    task: WorkerJob,
    hours: Hours,
    gauges: MetricsGauges,
    uploader: Uploader,
    stopping: list[float],
    others: Leader | None = None,
) -> list[Status] | None:
    """Return how the ranks ended; None when the micro batch was halved and they have to be started again.

    Raises:
        Exception: what ended the ranks.
    """
    killed_before = memory_kills()

    def look() -> None:
        limit(task.options.watts(is_night=hours.is_night))
        gauges.show(_SHOWN_SECONDS)
        uploader.check()

    with power_limit() as limit, uploader:
        task = others.begin(task, uploader.work_name) if others else task
        ending = run_ranks(task, gauges, stopping, look)
    full = full_ranks(ending, was_killed=memory_kills() > killed_before)
    if full:  # also while stopping: a micro batch that did not fit must not be tried again
        try:
            halve_micro_batch(task, full[0])
        except EnvironmentFault as error:
            raise describe(ending, error, full[0].rank, "", "lost it") from None
        return None
    raise_failure(ending)
    return list(ending.statuses)


@contextmanager
def alone(run: TrainRun) -> Iterator[None]:
    """Hold the lease of the channel, where `--when-busy` asks for it: two nights then never train at once.

    Raises:
        Busy: another training of the channel is at work.
    """
    options = run.options
    if options.when_busy == "train":
        yield
        return
    waits = options.when_busy == "wait"
    try:
        with alone_in(run.store, run.stage.name, options.channel, options.run_id, waits=waits):
            yield
    except Busy as reason:
        if options.nnodes > 1:
            tell_busy(run, str(reason))
        raise


def _sinks(run: TrainRun, task: WorkerJob) -> Sinks:
    """Return the places where the figures of the training go besides.

    Its options are shown there as config.yaml holds them: those of its surroundings may hold a password.
    """
    options = task.options
    shown = by_kind(options, "semantic", "execution")
    about = {"key": run.key, "run_id": options.run_id, "channel": options.channel, "options": shown}
    log_options = {"log_level": options.log_level, "log_format": options.log_format}
    return Sinks(options.sinks, task.folder, about, log_options)


def _task(run: TrainRun, cache: TokenCache, folder: Path) -> WorkerJob:
    """Return the job of the workers, checked."""
    model = run.inputs["model"]
    options = _checked(run.options, cache, model, folder)
    return WorkerJob(
        options=options,
        store=run.store.uri,
        token_cache=run.input("token_cache").reference,
        model=model.reference if model else None,
        folder=folder,
    )


def _train_twin(hours: Hours, others: Leader | None, task: WorkerJob, uploader: Uploader) -> Pause | None:
    """`train_or_pause` without metrics on /metrics, which belong to the model."""
    gauges = MetricsGauges(Telemetry(STAGE.name, STAGE.metrics), task.folder)
    return train_or_pause(task, hours, gauges, uploader, others)


def _checked(options: TrainConfig, cache: TokenCache, model: Output | None, folder: Path) -> TrainConfig:
    """Return the options with a micro batch that fits, after checks of the starting model, memory and disk.

    Raises:
        DataError, EnvironmentFault, UsageError: a check failed; says what to do.
    """
    shaped = options
    if model is None and options.lora_rank:
        raise UsageError(
            f"--lora-rank {options.lora_rank} trains beside a frozen model, and there is none: give --model"
        )
    if model is not None:
        check_tokenizer(model, cache)
        shaped = with_shape_of(options, model)
        check_finite(model)
    # Only the micro batch is taken over: a checkpoint remembers the options as they were given.
    vocabulary = vocabulary_of(model) if model else cache.vocab_size
    rows = fitted(shaped, vocabulary).micro_batch  # first: more disk space would not help it
    _check_space(folder, shaped, vocabulary)
    return dataclasses.replace(options, micro_batch=rows)


def _check_space(folder: Path, options: TrainConfig, vocabulary: int) -> None:
    """Refuse to start where two checkpoints and the model will not fit in the free space.

    Raises:
        EnvironmentFault: the whole disk is too small, or has too little space now; how much is needed.
    """
    every, trained = parameters(options, vocabulary)
    needed = 4 * (3 * 3 * trained + 2 * every)  # weight and two states, three times; the model twice
    disk = shutil.disk_usage(folder)
    own = sum(path.stat().st_size for path in folder.glob(f"{job.CHECKPOINTS}/*/*"))  # if it is resumed
    if disk.free + own >= needed:
        return
    what = f"checkpoints and model of {every / 1e6:.1f} M parameters need {human_bytes(needed)}"
    if disk.total < needed:
        raise EnvironmentFault(
            f"{folder}: {what}, and the whole disk has {human_bytes(disk.total)}; give a --store on a larger "
            "one, or a smaller model (--size, --layers, --width)"
        )
    raise EnvironmentFault(
        f"{folder}: {human_bytes(disk.free)} free, {what}; free space, or give another --store"
    )
